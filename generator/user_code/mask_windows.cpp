#include "generator/user_code/mask_windows.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "generator/shape.h"
#include "generator/user_code/code_tree.h"
#include "generator/user_code/position_sums.h"
#include "generator/user_code/read_once.h"

namespace attnforge {
namespace {

/// Where a sum that must be 0 or less puts the key, by the query's position; nothing: elsewhere.
std::optional<KeyBounds> bounds_of_sum(const PositionSum& sum, const Problem& p) {
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
  std::vector<PositionSum> sums;
};

/// What is known of a mask's text by itself.
struct ReadMask {
  std::vector<SumTerm> terms;
  bool others = false;  // there are terms that compare no sums
};

ReadMask read_mask(const std::string& text) {
  const CodeTree tree = code_tree(text, CodeText::kMask, {});
  if (tree.assigns) return {{}, true};
  const PositionSums sums = position_sums(tree);
  ReadMask mask;
  for (const int term : terms_of(tree, text)) {
    std::vector<PositionSum> compared = sums_of_comparison(tree, tree[term], sums);
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
  for (const PositionSum& sum : term.sums) {
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
