#include "generator/user_code/wide_indexes.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "generator/bucket.h"

namespace attnforge {
namespace {

constexpr double kInts = 2147483648.0;  // ints end before it
constexpr double kAny = std::numeric_limits<double>::infinity();

/// What a node may be, and the largest magnitude that it is computed from.
struct NodeRange {
  double least, most;
  double largest = 0;

  double magnitude() const { return std::max(std::abs(least), std::abs(most)); }
};
NodeRange up_to(double most) { return {-most, most}; }

NodeRange times(const NodeRange& a, const NodeRange& b) {
  if (std::isinf(a.magnitude()) || std::isinf(b.magnitude())) return up_to(kAny);
  const auto [least, most] = std::minmax(
      {a.least * b.least, a.least * b.most, a.most * b.least, a.most * b.most});
  return {least, most};
}

/// Of numbers of the user's nothing is known. They count as 1: an array that they make large has
/// its size in args.
constexpr double kMostNumber = 1;

/// By `ranges` of its operands.
NodeRange range_of(const CodeNode& node, const std::vector<NodeRange>& ranges, const Problem& p) {
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
    case CodeOp::kElement:
      return node.is_float ? up_to(kAny) : up_to(kMostNumber);
    case CodeOp::kNegative:
      return {-a.most, -a.least};
    case CodeOp::kInverse:
      return {-a.most - 1, -a.least - 1};
    case CodeOp::kWhole:  // of most floats no more is known than of a number
      return std::isinf(a.magnitude()) ? up_to(kMostNumber) : a;
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
    case CodeOp::kScore:
    case CodeOp::kDivide:
    case CodeOp::kCall:
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
      break;
  }
  return {0, 1};
}

/// Whether an index of the array, all that it is computed from included, may pass ints.
bool may_pass_ints(const CodeTree& tree, std::size_t argument, const Problem& p) {
  std::vector<NodeRange> ranges;
  for (const CodeNode& node : tree.nodes) {
    NodeRange range = range_of(node, ranges, p);
    if (!node.is_float) range.largest = range.magnitude();
    for (const int operand : {node.a, node.b, node.c}) {
      if (operand >= 0 && node.op != CodeOp::kElement)
        range.largest = std::max(range.largest, ranges[static_cast<std::size_t>(operand)].largest);
    }
    if (node.op == CodeOp::kElement && node.argument == argument &&
        ranges[static_cast<std::size_t>(node.a)].largest >= kInts)
      return true;
    ranges.push_back(range);
  }
  return false;
}

}  // namespace

bool has_wide_indexes(std::string_view text, CodeText kind, const Problem& problem) {
  if (problem.args.empty() || text.empty()) return false;
  Problem largest = bucket(problem);
  constexpr std::int64_t kMostBatch = 1 << 20;
  if (problem.batch_invariant) largest.batch = kMostBatch;  // all of them have one bucket
  const std::vector<CodeArgument> arguments = code_arguments(problem.args);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const CodeArgument& argument = arguments[i];
    if (!argument.is_array || !names(text, argument.name)) continue;
    if (!argument.extent.empty()) {
      if (static_cast<double>(most_elements(argument, largest)) > kInts) return true;
      continue;
    }
    const CodeTree tree = code_tree(text, kind, arguments);
    if (tree.unknown.empty() && may_pass_ints(tree, i, largest)) return true;
  }
  return false;
}

}  // namespace attnforge
