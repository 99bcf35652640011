// stored_rows.h - how many rows tensors have in memory.
#pragma once

#include <cstdint>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "generator/launch.h"

namespace attnforge {

/// Rows of q and o, and of k and v, in each of `batch` or `kv_batch` tensors one after another. Of
/// an append k and v are the caches.
struct StoredRows {
  std::int64_t q = 0;
  std::int64_t kv = 0;  // with pages: of each page
  std::int64_t batch = 0;
  std::int64_t kv_batch = 0;  // with pages: those of a pool that attnforge makes itself
  bool pool = false;          // k and v lie in pages
  // These are the most that there may be: a run says how many there are. Not of a pool.
  bool of_run = false;
};
inline StoredRows stored_rows(const Problem& problem) {
  const bool packed = problem.lengths == Lengths::kPacked, paged = has_pages(problem);
  const bool packed_keys = packed && problem.op != Op::kAppend;
  const Tokens tokens = total_tokens(problem);
  StoredRows rows{.q = packed ? tokens.q : problem.seqlen_q,
                  .kv = packed_keys ? tokens.kv : problem.seqlen_kv,
                  .batch = packed ? 1 : problem.batch,
                  .kv_batch = packed_keys ? 1 : problem.batch,
                  .pool = paged,
                  .of_run = packed};
  if (paged) {
    rows.kv = problem.page_size;
    rows.kv_batch = pages_of_pool(problem);
  }
  return rows;
}

/// With as many pages as the run's pools have.
inline StoredRows stored_rows_of_run(const Problem& problem, const Tensors& run) {
  StoredRows rows = stored_rows(problem);
  if (rows.pool) rows.kv_batch = run.pages.num_pages;
  return rows;
}

/// The sizes of a map whose launch planned `sizes`, with what the run says.
inline TensorMapSizes sizes_of_run(const TensorMapSpec& map, TensorMapSizes sizes,
                                   const Tensors& run) {
  const std::int64_t rows = map.operand.of_keys ? run.lengths.tokens_kv : run.lengths.tokens_q;
  if (map.rows_of_run && rows > 0) sizes.rows = rows;
  if (map.batch_of_run) sizes.batch = run.pages.num_pages;
  return sizes;
}

}  // namespace attnforge
