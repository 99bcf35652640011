#include "generator/user_code/mask_windows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "generator/shape.h"
#include "generator/user_code/code_tree.h"
#include "generator/user_code/read_once.h"

namespace attnforge {
namespace {

/// A sum of positions, lengths and a number, each with a factor.
struct Sum {
  std::int64_t k = 0, q = 0, seqlen_q = 0, seqlen_kv = 0, number = 0;

  Sum plus(const Sum& other, std::int64_t factor) const {
    return {k + factor * other.k, q + factor * other.q, seqlen_q + factor * other.seqlen_q,
            seqlen_kv + factor * other.seqlen_kv, number + factor * other.number};
  }
};
using Sums = std::vector<std::optional<Sum>>;  // one for each node of a tree

std::optional<Sum> sum_of(const CodeNode& node, const Sums& sums) {
  constexpr double kMostNumber = 1 << 30;  // as far as windows go
  const auto of = [&](int operand) { return sums[operand]; };
  switch (node.op) {
    case CodeOp::kK:
      return Sum{.k = 1};
    case CodeOp::kQ:
      return Sum{.q = 1};
    case CodeOp::kSeqlenQ:
      return Sum{.seqlen_q = 1};
    case CodeOp::kSeqlenKv:
      return Sum{.seqlen_kv = 1};
    case CodeOp::kNumber:
      if (node.is_float || node.number > kMostNumber) return std::nullopt;
      return Sum{.number = static_cast<std::int64_t>(node.number)};
    case CodeOp::kNegative:
      if (!of(node.a)) return std::nullopt;
      return Sum().plus(*of(node.a), -1);
    case CodeOp::kPlus:
    case CodeOp::kMinus:
      if (!of(node.a) || !of(node.b)) return std::nullopt;
      return of(node.a)->plus(*of(node.b), node.op == CodeOp::kPlus ? 1 : -1);
    default:
      return std::nullopt;
  }
}

/// Where a sum that must be 0 or less puts the key, by the query's position; nothing: elsewhere.
std::optional<KeyBounds> bounds_of_sum(const Sum& sum, const Problem& p) {
  if (sum.k * sum.q != -1) return std::nullopt;
  // A position is q + seqlen_kv - seqlen_q.
  const std::int64_t per_q = sum.seqlen_q - sum.k, per_kv = sum.seqlen_kv + sum.k;
  if (!has_fixed_lengths(p) && (per_q != 0 || per_kv != 0)) return std::nullopt;
  const std::int64_t bound = -(sum.number + per_q * p.seqlen_q + per_kv * p.seqlen_kv);
  return sum.k > 0 ? KeyBounds{.left = {}, .right = bound} : KeyBounds{.left = bound, .right = {}};
}

void narrow(KeyBounds& bounds, const KeyBounds& by) {
  if (by.left) bounds.left = std::min(*by.left, bounds.left.value_or(*by.left));
  if (by.right) bounds.right = std::min(*by.right, bounds.right.value_or(*by.right));
}

/// A term that compares sums: where it is in the text, and what has to be 0 or less.
struct SumTerm {
  std::size_t begin, end;
  std::vector<Sum> sums;
};

/// The sums of a term that compares some; empty if it is another.
std::vector<Sum> sums_of_term(const CodeTree& tree, const CodeNode& term, const Sums& all) {
  using enum CodeOp;
  const bool is_strict = term.op == kBelow || term.op == kAbove;
  const bool has_most = term.op == kBelow || term.op == kAtMost || term.op == kEqual;
  const bool has_least = term.op == kAbove || term.op == kAtLeast || term.op == kEqual;
  if (!has_most && !has_least) return {};
  const CodeNode& first = tree[term.a];
  const bool magnitude = first.op == kAbs && !first.is_float;
  const auto& left = all[magnitude ? first.a : term.a];
  const auto& right = all[term.b];
  if (!left || !right) return {};
  if (magnitude && (has_least || right->k != 0 || right->q != 0)) return {};
  std::vector<Sum> sums;
  if (has_most) sums.push_back(left->plus(*right, -1));
  if (has_least) sums.push_back(right->plus(*left, -1));
  if (magnitude) sums.push_back(Sum().plus(*left, -1).plus(*right, -1));
  for (Sum& sum : sums) sum.number += is_strict ? 1 : 0;
  return sums;
}

/// What is known of a mask's text by itself.
struct ReadMask {
  std::vector<SumTerm> terms;
  bool others = false;  // there are terms that compare no sums
};

ReadMask read_mask(const std::string& text) {
  const CodeTree tree = code_tree(text, CodeText::kMask, {});
  if (tree.assigns) return {{}, true};
  Sums sums;
  for (const CodeNode& node : tree.nodes) sums.push_back(sum_of(node, sums));
  ReadMask mask;
  for (const int term : terms_of(tree, text)) {
    std::vector<Sum> compared = sums_of_term(tree, tree[term], sums);
    if (compared.empty())
      mask.others = true;
    else
      mask.terms.push_back({tree[term].begin, tree[term].end, std::move(compared)});
  }
  return mask;
}

/// The bounds of a term; nothing if it is no window.
std::optional<KeyBounds> bounds_of_term(const SumTerm& term, const Problem& p) {
  KeyBounds bounds;
  for (const Sum& sum : term.sums) {
    const std::optional<KeyBounds> found = bounds_of_sum(sum, p);
    if (!found) return std::nullopt;
    narrow(bounds, *found);
  }
  return bounds;
}

/// Calls found(term, bounds) for all windows among the terms of a mask text; returns whether that
/// is all terms.
template <class Found>
bool for_each_window(const Problem& p, const Found& found) {
  if (has_block_mask(p) || p.mask.empty()) return p.mask.empty();
  const ReadMask& mask = read_once<read_mask>(p.mask);
  bool all = !mask.others;
  for (const SumTerm& term : mask.terms) {
    const std::optional<KeyBounds> bounds = bounds_of_term(term, p);
    if (bounds) found(term, *bounds);
    all &= bounds.has_value();
  }
  return all;
}

KeyBounds bounds_of_window(const Problem& problem) {
  const Window window = effective_window(problem);
  KeyBounds bounds;
  if (window.left >= 0) bounds.left = window.left;
  if (window.right >= 0) bounds.right = window.right;
  return bounds;
}

}  // namespace

MaskTerms mask_terms(const Problem& problem) {
  MaskTerms terms{.bounds = bounds_of_window(problem), .code = problem.mask};
  const bool nothing_left = for_each_window(problem,
                                            [&](const SumTerm& term, const KeyBounds& bounds) {
                                              narrow(terms.bounds, bounds);
                                              for (std::size_t i = term.begin; i < term.end; ++i) {
                                                if (terms.code[i] != '\n') terms.code[i] = ' ';
                                              }
                                              terms.code[term.begin] = '1';
                                            });
  if (nothing_left) terms.code.clear();
  return terms;
}

KeyBounds key_bounds(const Problem& problem) {
  KeyBounds all = bounds_of_window(problem);
  for_each_window(problem, [&](const SumTerm&, const KeyBounds& bounds) { narrow(all, bounds); });
  return all;
}

std::string mask_code(const Problem& problem) { return mask_terms(problem).code; }

}  // namespace attnforge
