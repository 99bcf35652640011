// pair_terms.h - terms of a mask's text that decide many pairs at once: comparisons of something of
// the query with something of the key, such as "document[q] == document[k]".
#pragma once

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

/// Terms that && joins in mask_code(). A term that names only one of q and k is compared with
/// "true". Both sides are computed for every query and every key of a range, whatever other terms
/// say of the pair: so a term that reads an array is none unless it comes first and its indexes are
/// sums of products of batch, head, q, k and lengths, and nothing else.
struct PairTerms {
  std::vector<PairTerm> terms;
  bool all = true;  // there are no others
};
PairTerms pair_terms(const Problem& problem);

/// Whether the problem's texts do nothing with an array but compare its elements for equality with
/// others: what they are, such as numbers of documents, is then the caller's choice.
bool holds_labels(const Problem& problem, std::string_view array);

}  // namespace attnforge
