#include "generator/user_code/mask_windows.h"

#include <algorithm>
#include <charconv>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/shape.h"
#include "generator/user_code/code_terms.h"
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

/// Reads sums from the first of its tokens on.
class Reader {
 public:
  explicit Reader(Code tokens) : rest_(tokens) {}

  bool at_end() const { return rest_.empty(); }
  bool skip(std::string_view token) {
    if (at_end() || rest_.front().text != token) return false;
    rest_ = rest_.subspan(1);
    return true;
  }
  /// Skips an operator of two tokens whose characters touch.
  bool skip_both(std::string_view first, std::string_view second) {
    if (rest_.size() < 2 || rest_[0].text != first || rest_[1].text != second ||
        rest_[0].end() != rest_[1].at)
      return false;
    rest_ = rest_.subspan(2);
    return true;
  }
  std::optional<Sum> sum() {
    std::optional<Sum> total = term();
    while (total) {
      const std::int64_t factor = skip("+") ? 1 : skip("-") ? -1 : 0;
      if (factor == 0) break;
      const std::optional<Sum> next = term();
      if (!next) return std::nullopt;
      total = total->plus(*next, factor);
    }
    return total;
  }

 private:
  std::optional<Sum> term() {
    constexpr int kMostDepth = 64;
    if (at_end() || depth_ > kMostDepth) return std::nullopt;
    if (skip("-")) {
      ++depth_;
      const std::optional<Sum> negated = term();
      --depth_;
      if (negated) return Sum().plus(*negated, -1);
      return std::nullopt;
    }
    if (skip("(")) {
      ++depth_;
      const std::optional<Sum> inner = sum();
      --depth_;
      if (!inner || !skip(")")) return std::nullopt;
      return inner;
    }
    const std::string_view text = rest_.front().text;
    rest_ = rest_.subspan(1);
    if (text == "k") return Sum{.k = 1};
    if (text == "q") return Sum{.q = 1};
    if (text == "seqlen_q") return Sum{.seqlen_q = 1};
    if (text == "seqlen_kv") return Sum{.seqlen_kv = 1};
    constexpr std::int64_t kMostNumber = 1 << 30;  // as far as windows go
    std::int64_t number = 0;
    const char* const end = text.data() + text.size();
    const bool octal = text.size() > 1 && text.front() == '0';
    const auto [rest, error] = std::from_chars(text.data(), end, number);
    if (error != std::errc() || rest != end || octal || number > kMostNumber) return std::nullopt;
    return Sum{.number = number};
  }

  Code rest_;
  int depth_ = 0;
};

/// "below" or "at most" (-1), "equal" (0), "above" or "at least" (1), and whether equality is out.
struct Comparison {
  int side;
  bool strict;
};
std::optional<Comparison> comparison(Reader& reader) {
  if (reader.skip_both("<", "=")) return Comparison{-1, false};
  if (reader.skip_both(">", "=")) return Comparison{1, false};
  if (reader.skip_both("=", "=")) return Comparison{0, false};
  if (reader.skip("<")) return Comparison{-1, true};
  if (reader.skip(">")) return Comparison{1, true};
  return std::nullopt;
}

/// How far from a query's position a sum that must be 0 or less puts the key: an upper bound of
/// key - position if factor is 1, a lower one if it is -1.
struct Distance {
  std::int64_t factor, bound;
};
std::optional<Distance> distance(const Sum& sum, const Problem& p) {
  if (sum.k * sum.q != -1) return std::nullopt;
  // A position is q + seqlen_kv - seqlen_q.
  const std::int64_t per_q = sum.seqlen_q - sum.k, per_kv = sum.seqlen_kv + sum.k;
  if (!has_fixed_lengths(p) && (per_q != 0 || per_kv != 0)) return std::nullopt;
  return Distance{sum.k, -sum.k * (sum.number + per_q * p.seqlen_q + per_kv * p.seqlen_kv)};
}

void narrow(std::optional<std::int64_t>& bound, std::int64_t to) {
  bound = bound ? std::min(*bound, to) : to;
}
void narrow(KeyBounds& bounds, const Distance& distance) {
  if (distance.factor > 0)
    narrow(bounds.right, distance.bound);
  else
    narrow(bounds.left, -distance.bound);
}

/// A term that compares sums: where it is in the text, and what has to be 0 or less.
struct SumTerm {
  std::size_t begin, end;
  std::vector<Sum> sums;
};

/// The sums of a term that compares some; empty if it is another.
std::vector<Sum> sums_of_term(Code term) {
  Reader reader(term);
  const bool magnitude = reader.skip("abs");
  if (magnitude && !reader.skip("(")) return {};
  const std::optional<Sum> left = reader.sum();
  if (!left || (magnitude && !reader.skip(")"))) return {};
  const std::optional<Comparison> compared = comparison(reader);
  if (!compared) return {};
  const std::optional<Sum> right = reader.sum();
  if (!right || !reader.at_end()) return {};
  if (magnitude && (compared->side != -1 || right->k != 0 || right->q != 0)) return {};
  std::vector<Sum> sums;
  if (compared->side <= 0) sums.push_back(left->plus(*right, -1));
  if (compared->side >= 0) sums.push_back(right->plus(*left, -1));
  if (magnitude) sums.push_back(Sum().plus(*left, -1).plus(*right, -1));
  for (Sum& sum : sums) sum.number += compared->strict ? 1 : 0;
  return sums;
}

/// What is known of a mask's text by itself.
struct ReadMask {
  std::vector<SumTerm> terms;
  bool others = false;  // there are terms that compare no sums
};

ReadMask read_mask(const std::string& text) {
  ReadMask mask;
  const std::vector<CodeToken> tokens = code_tokens(text);
  if (tokens.empty()) return mask;
  if (may_assign(tokens)) return {{}, true};
  for (const Code term : terms_of(tokens)) {
    std::vector<Sum> sums = sums_of_term(term);
    mask.others |= sums.empty();
    if (!sums.empty()) mask.terms.push_back({term.front().at, term.back().end(), std::move(sums)});
  }
  return mask;
}

/// The bounds of a term; nothing if it is no window.
std::optional<KeyBounds> bounds_of_term(const SumTerm& term, const Problem& p) {
  KeyBounds bounds;
  for (const Sum& sum : term.sums) {
    const std::optional<Distance> found = distance(sum, p);
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

void narrow(KeyBounds& bounds, const KeyBounds& by) {
  if (by.left) narrow(bounds.left, *by.left);
  if (by.right) narrow(bounds.right, *by.right);
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
