// stored_rows.h - how many rows tensors have in memory.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"

namespace attnforge {

/// Of q and o, and of k and v, for each of `batch` or `kv_batch` tensors one after another.
struct StoredRows {
  std::int64_t q = 0;
  std::int64_t kv = 0;  // with pages: of each page
  std::int64_t batch = 0;
  std::int64_t kv_batch = 0;  // with pages: those of a pool that attnforge makes itself
  bool pool = false;          // k and v lie in pages
  bool of_run = false;        // these are the most that there may be: a run says how many there are
};
inline StoredRows stored_rows(const Problem& problem) {
  if (problem.lengths != Lengths::kPacked) {
    const bool paged = has_pages(problem);
    return {.q = problem.seqlen_q,
            .kv = paged ? problem.page_size : problem.seqlen_kv,
            .batch = problem.batch,
            .kv_batch = paged ? pages_of_pool(problem) : problem.batch,
            .pool = paged};
  }
  const Tokens tokens = total_tokens(problem);
  return {.q = tokens.q, .kv = tokens.kv, .batch = 1, .kv_batch = 1, .of_run = true};
}

}  // namespace attnforge
