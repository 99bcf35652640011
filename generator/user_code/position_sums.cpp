#include "generator/user_code/position_sums.h"

namespace attnforge {
namespace {

std::optional<PositionSum> sum_of(const CodeNode& node, const PositionSums& sums) {
  constexpr double kMostNumber = 1 << 30;  // as far as windows go
  const auto of = [&](int operand) { return sums[operand]; };
  switch (node.op) {
    case CodeOp::kK:
      return PositionSum{.k = 1};
    case CodeOp::kQ:
      return PositionSum{.q = 1};
    case CodeOp::kSeqlenQ:
      return PositionSum{.seqlen_q = 1};
    case CodeOp::kSeqlenKv:
      return PositionSum{.seqlen_kv = 1};
    case CodeOp::kNumber:
      if (node.is_float || node.number > kMostNumber) return std::nullopt;
      return PositionSum{.number = static_cast<std::int64_t>(node.number)};
    case CodeOp::kArgument:
      if (node.is_float) return std::nullopt;
      return PositionSum{.of_run = 1, .argument = node.argument};
    case CodeOp::kNegative:
      if (!of(node.a)) return std::nullopt;
      return PositionSum().plus(*of(node.a), -1);
    case CodeOp::kPlus:
    case CodeOp::kMinus:
      if (!of(node.a) || !of(node.b)) return std::nullopt;
      return of(node.a)->plus(*of(node.b), node.op == CodeOp::kPlus ? 1 : -1);
    default:
      return std::nullopt;
  }
}

}  // namespace

std::optional<PositionSum> PositionSum::plus(const PositionSum& other, std::int64_t factor) const {
  if (of_run != 0 && other.of_run != 0 && argument != other.argument) return std::nullopt;
  return PositionSum{.k = k + factor * other.k,
                     .q = q + factor * other.q,
                     .seqlen_q = seqlen_q + factor * other.seqlen_q,
                     .seqlen_kv = seqlen_kv + factor * other.seqlen_kv,
                     .number = number + factor * other.number,
                     .of_run = of_run + factor * other.of_run,
                     .argument = of_run != 0 ? argument : other.argument};
}

PositionSums position_sums(const CodeTree& tree) {
  PositionSums sums;
  for (const CodeNode& node : tree.nodes) sums.push_back(sum_of(node, sums));
  return sums;
}

std::vector<PositionSum> sums_of_comparison(const CodeTree& tree, const CodeNode& node,
                                            const PositionSums& sums) {
  using enum CodeOp;
  const bool is_strict = node.op == kBelow || node.op == kAbove;
  const bool has_most = node.op == kBelow || node.op == kAtMost || node.op == kEqual;
  const bool has_least = node.op == kAbove || node.op == kAtLeast || node.op == kEqual;
  if (!has_most && !has_least) return {};
  const CodeNode& first = tree[node.a];
  const bool magnitude = first.op == kAbs && !first.is_float;
  const auto& left = sums[magnitude ? first.a : node.a];
  const auto& right = sums[node.b];
  if (!left || !right) return {};
  if (magnitude && (has_least || right->k != 0 || right->q != 0)) return {};
  const std::optional<PositionSum> most = left->plus(*right, -1), least = right->plus(*left, -1);
  if (!most) return {};
  std::vector<PositionSum> found;
  if (has_most) found.push_back(*most);
  if (has_least) found.push_back(*least);
  if (magnitude) found.push_back(*PositionSum().plus(*left, -1)->plus(*right, -1));
  for (PositionSum& sum : found) sum.number += is_strict ? 1 : 0;
  return found;
}

}  // namespace attnforge
