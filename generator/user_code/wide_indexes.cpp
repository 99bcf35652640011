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

using enum CodeOp;

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

/// The range of an operation by those of its operands.
NodeRange range_of(CodeOp op, const NodeRange& a, const NodeRange& b, const NodeRange& c) {
  switch (op) {
    case kNegative:
      return {-a.most, -a.least};
    case kInverse:
      return {-a.most - 1, -a.least - 1};
    case kAbs:
      return {0, a.magnitude()};
    case kTimes:
      return times(a, b);
    case kDivideWhole:
    case kRight:
      return up_to(a.magnitude());
    case kRest:
      return up_to(std::min(a.magnitude(), b.magnitude()));
    case kPlus:
      return {a.least + b.least, a.most + b.most};
    case kMinus:
      return {a.least - b.most, a.most - b.least};
    case kLeft:
      return times(a, {0, std::exp2(std::clamp(b.most, 0.0, 31.0))});
    case kBits:
      return up_to(std::max(a.magnitude(), b.magnitude()));
    case kOtherBits:
    case kAnyBits:
      return up_to(2 * std::max(a.magnitude(), b.magnitude()));
    case kMin:
      return {std::min(a.least, b.least), std::min(a.most, b.most)};
    case kMax:
      return {std::max(a.least, b.least), std::max(a.most, b.most)};
    case kChoice:
      return {std::min(b.least, c.least), std::max(b.most, c.most)};
    case kFloat:
      return a;
    case kDivide:
      return up_to(b.least >= 1 || b.most <= -1 ? a.magnitude() : kAny);
    default:  // comparisons
      return {0, 1};
  }
}

/// The range of a node by the `ranges` of its operands. `place`: what ints are of which nothing is
/// known.
NodeRange range_of(const CodeNode& node, const std::vector<NodeRange>& ranges, const Problem& p,
                   double place) {
  const auto of = [&](int at) { return at < 0 ? NodeRange{0, 0} : ranges[at]; };
  const auto below = [](std::int64_t size) {
    return NodeRange{0, static_cast<double>(std::max<std::int64_t>(0, size - 1))};
  };
  const NodeRange a = of(node.a);
  switch (node.op) {
    case kNumber:
      return {node.number, node.number};
    case kBatch:
      return below(p.batch);
    case kHead:
      return below(p.num_heads_q);
    case kQ:
      return below(p.seqlen_q);
    case kK:
      return below(p.seqlen_kv);
    case kSeqlenQ:
      return {0, static_cast<double>(p.seqlen_q)};
    case kSeqlenKv:
      return {0, static_cast<double>(p.seqlen_kv)};
    case kArgument:
      return up_to(kMostNumber);
    case kElement:
      if (node.type == CodeArgument::Type::kBool) return {0, 1};
      return up_to(node.is_float ? kAny : place);
    case kWhole:
      return std::isinf(a.magnitude()) ? up_to(place) : a;
    case kCall:
      return range_of_call(node.function->name, a);
    case kScore:
      return up_to(kAny);
    default:
      return range_of(node.op, a, of(node.b), of(node.c));
  }
}

bool makes_small(CodeOp op) {
  return op == kRest || op == kDivideWhole || op == kRight || op == kBits;
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
      if (operand < 0 || node.op == kElement) continue;
      const NodeRange& of = ranges[operand];
      range.largest = std::max(range.largest, of.largest);
      range.reduced = std::max(range.reduced, makes_small(node.op) ? of.largest : of.reduced);
    }
    if (node.op == kElement && node.argument == argument) {
      const NodeRange& index = ranges[node.a];
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
