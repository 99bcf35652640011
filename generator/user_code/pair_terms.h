// pair_terms.h - terms of a mask's text that decide many pairs at once: comparisons of something of
// the query with something of the key, such as "document[q] == document[k]".
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

/// A term `of_query relation of_key` of the text: expressions of which the first does not name k,
/// and the second not q.
struct PairTerm {
  enum class Relation { kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast };
  std::string of_query;
  Relation relation = Relation::kEqual;
  std::string of_key;
};

/// The terms of mask_code(), and how it joins them. One that names only one of q and k is compared
/// with "true"; of "q - k < 9" the two sides are made. Both sides are computed for every query and
/// every key of a range, whatever other terms say of the pair: so a term that reads an array is
/// none unless it comes first and its indexes are sums of products of batch, head, q, k and
/// lengths, and nothing else, or they are of batch and head alone, and what comes before is of q
/// and k alone.
struct PairTerms {
  enum Join : int { kBoth = -1, kEither = -2, kOpposite = -3, kUnknown = -4 };

  std::vector<PairTerm> terms;
  /// The text's value, operands first: indexes of terms, and Joins. kUnknown is what no term tells.
  std::vector<int> value;

  bool all() const { return std::ranges::find(value, int{kUnknown}) == value.end(); }
};
PairTerms pair_terms(const Problem& problem);

/// Whether the problem's texts do nothing with an array but compare its elements for equality with
/// others: what they are, such as numbers of documents, is then the caller's choice.
bool holds_labels(const Problem& problem, std::string_view array);

}  // namespace attnforge
