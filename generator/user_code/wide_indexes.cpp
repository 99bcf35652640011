#include "generator/user_code/wide_indexes.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string_view>
#include <vector>

#include "generator/problem/bucket.h"

namespace attnforge {
namespace {

constexpr double kInts = 2147483648.0;  // ints end before it
constexpr double kAny = std::numeric_limits<double>::infinity();

/// What a node may be, the largest magnitude that it is computed from, and the largest of these
/// that a rest, a quotient, a shift or bits make small again.
struct NodeRange {
  double least, most;
  double largest = 0, reduced = 0;

  double magnitude() const { return std::max(std::abs(least), std::abs(most)); }
};
NodeRange up_to(double most) { return {-most, most}; }

NodeRange times(const NodeRange& a, const NodeRange& b) {
  if (std::isinf(a.magnitude()) || std::isinf(b.magnitude())) return up_to(kAny);
  const auto [least, most] = std::minmax(
      {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most});
  return {least, most};
}

/// The user's numbers, of which nothing is known, count as 1: an array that they make large has its
/// size in args.
constexpr double kMostNumber = 1;

/// Ints in arrays and of functions count as places in an array: they and sums of a few of them are
/// ints, multiples of them may be none.
constexpr double kMostPlace = kInts / 4;

/// The range of a function whose operand is in `a`.
NodeRange range_of_call(std::string_view name, const NodeRange& a) {
  constexpr std::string_view kSteps[] = {"floor", "ceil", "trunc", "round", "rint"},
                             kUpTo1[] = {"sin", "cos", "tanh", "erf"},
                             kLogs[] = {"log", "log2", "log10"};
  const auto is_in = [&](const auto& list) {
    return std::ranges::find(list, name) != std::end(list);
  };
  if (is_in(kSteps)) return {a.least - 1, a.most + 1};
  if (is_in(kUpTo1)) return up_to(1);
  if (is_in(kLogs)) return up_to(1100);  // of any double but 0
  if (name == "sqrt") return up_to(std::max(1.0, a.magnitude()));
  return up_to(kAny);
}

/// The range of a node by the `ranges` of its operands. `place`: what ints are of which nothing is
/// known.
NodeRange range_of(const CodeNode& node, const std::vector<NodeRange>& ranges, const Problem& p,
                   double place) {
  const auto of = [&](int at) {
    return at < 0 ? NodeRange{0, 0} : ranges[static_cast<std::size_t>(at)];
  };
  const auto below = [](std::int64_t size) {
    return NodeRange{0, static_cast<double>(std::max<std::int64_t>(0, size - 1))};
  };
  const NodeRange a = of(node.a), b = of(node.b);
  switch (node.op) {
    case CodeOp::kNumber:
      return {node.number, node.number};
    case CodeOp::kBatch:
      return below(p.batch);
    case CodeOp::kHead:
      return below(p.num_heads_q);
    case CodeOp::kQ:
      return below(p.seqlen_q);
    case CodeOp::kK:
      return below(p.seqlen_kv);
    case CodeOp::kSeqlenQ:
      return {0, static_cast<double>(p.seqlen_q)};
    case CodeOp::kSeqlenKv:
      return {0, static_cast<double>(p.seqlen_kv)};
    case CodeOp::kArgument:
      return up_to(kMostNumber);
    case CodeOp::kElement:
      if (node.type == CodeArgument::Type::kBool) break;
      return up_to(node.is_float ? kAny : place);
    case CodeOp::kNegative:
      return {-a.most, -a.least};
    case CodeOp::kInverse:
      return {-a.most - 1, -a.least - 1};
    case CodeOp::kWhole:
      return std::isinf(a.magnitude()) ? up_to(place) : a;
    case CodeOp::kAbs:
      return {0, a.magnitude()};
    case CodeOp::kTimes:
      return times(a, b);
    case CodeOp::kDivideWhole:
    case CodeOp::kRight:
      return up_to(a.magnitude());
    case CodeOp::kRest:
      return up_to(std::min(a.magnitude(), b.magnitude()));
    case CodeOp::kPlus:
      return {a.least + b.least, a.most + b.most};
    case CodeOp::kMinus:
      return {a.least - b.most, a.most - b.least};
    case CodeOp::kLeft:
      return times(a, {0, std::exp2(std::clamp(b.most, 0.0, 31.0))});
    case CodeOp::kBits:
      return up_to(std::max(a.magnitude(), b.magnitude()));
    case CodeOp::kOtherBits:
    case CodeOp::kAnyBits:
      return up_to(2 * std::max(a.magnitude(), b.magnitude()));
    case CodeOp::kMin:
      return {std::min(a.least, b.least), std::min(a.most, b.most)};
    case CodeOp::kMax:
      return {std::max(a.least, b.least), std::max(a.most, b.most)};
    case CodeOp::kChoice:
      return {std::min(b.least, of(node.c).least), std::max(b.most, of(node.c).most)};
    case CodeOp::kFloat:
      return a;
    case CodeOp::kDivide:
      return up_to(b.least >= 1 || b.most <= -1 ? a.magnitude() : kAny);
    case CodeOp::kCall:
      return range_of_call(node.function->name, a);
    case CodeOp::kScore:
      return up_to(kAny);
    case CodeOp::kNot:
    case CodeOp::kBool:
    case CodeOp::kBelow:
    case CodeOp::kAtMost:
    case CodeOp::kAbove:
    case CodeOp::kAtLeast:
    case CodeOp::kEqual:
    case CodeOp::kUnequal:
    case CodeOp::kAnd:
    case CodeOp::kOr:
    case CodeOp::kUnknown:
    case CodeOp::kOpaque:
      break;
  }
  return {0, 1};
}

bool makes_small(CodeOp op) {
  return op == CodeOp::kRest || op == CodeOp::kDivideWhole || op == CodeOp::kRight ||
         op == CodeOp::kBits;
}

/// The largest magnitudes of the indexes of the array.
NodeRange range_of_indexes(const CodeTree& tree, std::size_t argument, const Problem& p,
                           double place) {
  std::vector<NodeRange> ranges;
  NodeRange all{0, 0};
  for (const CodeNode& node : tree.nodes) {
    NodeRange range = range_of(node, ranges, p, place);
    if (!node.is_float) range.largest = range.magnitude();
    for (const int operand : {node.a, node.b, node.c}) {
      if (operand < 0 || node.op == CodeOp::kElement) continue;
      const NodeRange& of = ranges[static_cast<std::size_t>(operand)];
      range.largest = std::max(range.largest, of.largest);
      range.reduced = std::max(range.reduced, makes_small(node.op) ? of.largest : of.reduced);
    }
    if (node.op == CodeOp::kElement && node.argument == argument) {
      const NodeRange& index = ranges[static_cast<std::size_t>(node.a)];
      all.largest = std::max(all.largest, index.largest);
      all.reduced = std::max(all.reduced, index.reduced);
    }
    ranges.push_back(range);
  }
  return all;
}

/// Whether an index of the array, all that it is computed from included, may pass ints. An array
/// with a size bounds places that its indexes are sums of, but not what is made small before.
bool may_pass_ints(const CodeTree& tree, std::size_t argument, bool has_size, const Problem& p) {
  const NodeRange of_places = range_of_indexes(tree, argument, p, kMostPlace);
  if (!has_size) return of_places.largest >= kInts;
  return of_places.reduced >= kInts || range_of_indexes(tree, argument, p, 1).largest >= kInts;
}

}  // namespace

bool has_wide_indexes(std::string_view text, CodeText kind, const Problem& problem) {
  if (problem.args.empty() || text.empty()) return false;
  Problem largest = bucket(problem);
  constexpr std::int64_t kMostBatch = 1 << 20;
  if (problem.batch_invariant) largest.batch = kMostBatch;  // all of them have one bucket
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  const CodeTree tree = code_tree(text, kind, arguments);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CodeArgument& argument = arguments[i];
    if (!argument.is_array || !names(text, argument.name)) continue;
    const bool has_size = !argument.extent.empty();
    if (has_size && static_cast<double>(most_elements(argument, largest)) > kInts) return true;
    if (tree.unknown.empty() && may_pass_ints(tree, i, has_size, largest)) return true;
  }
  return false;
}

}  // namespace attnforge
