// terms.cuh - the terms of the user's mask text that compare something of the query with
// something of the key, as a step that asks many pairs at once takes them.
#pragma once

#include "base.cuh"
#include "base_params.h"
#include "parts/user_code/code.cuh"
#include "parts/user_code/term_ranges.cuh"

namespace attnforge {

/// Code is that of a step.
template <class Code>
struct UserTerms {
  static constexpr int kCount = Code::kTerms;
  static constexpr bool kAll = Code::kAllTerms;  // the text has no others
  ATTNFORGE_DEVICE static constexpr TermRelation relation(int term) { return Code::relation(term); }

  template <int kTerm, class Params, class Lengths>
  ATTNFORGE_DEVICE static auto of_query(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query) {
    return Code::template term_of_query<kTerm>(params.code, sequence, head, query, lengths.q(),
                                               lengths.kv());
  }
  template <int kTerm, class Params, class Lengths>
  ATTNFORGE_DEVICE static auto of_key(const Params& params, const Lengths& lengths, int sequence,
                                      int head, int key) {
    return Code::template term_of_key<kTerm>(params.code, sequence, head, key, lengths.q(),
                                             lengths.kv());
  }
};

}  // namespace attnforge
