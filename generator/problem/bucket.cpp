#include "generator/problem/bucket.h"

#include <bit>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"

namespace attnforge {

/// Monotone and idempotent, so that equal lengths stay equal and the longer one never becomes the
/// shorter one.
std::int64_t bucket_seqlen(std::int64_t seqlen) {
  if (seqlen <= 1) return seqlen;
  const auto length = static_cast<std::uint64_t>(seqlen);
  if (length > 16 && length <= 64) return 64;
  // Of a few new tokens each number of rows wants tiles of its own.
  if (length <= 1024) return static_cast<std::int64_t>(std::bit_ceil(length));
  const std::uint64_t step = std::bit_floor(length) / 4;
  return static_cast<std::int64_t>((length + step - 1) / step * step);
}

std::int64_t bucket_batch(std::int64_t batch) {
  if (batch <= 2) return batch;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(batch)));
  return batch <= above / 4 * 3 ? above / 4 * 3 : above;
}

Problem bucket(const Problem& problem) {
  // Of all batch_invariant buckets: what is chosen for it serves one sequence and many.
  constexpr std::int64_t kBatchOfAll = 4;
  Problem rounded = problem;
  round_fields(rounded);
  rounded.batch = problem.batch_invariant && problem.batch > 0 ? kBatchOfAll
                                                               : bucket_batch(problem.batch);
  rounded.seqlen_q = bucket_seqlen(problem.seqlen_q);
  rounded.seqlen_kv = bucket_seqlen(problem.seqlen_kv);
  for_each_part<&ProblemPart::round>(problem, problem, rounded);
  // Each limit is on the grid, but their products are not: such giants keep their sizes and stay
  // valid.
  if (!products_within_limits(rounded)) {
    rounded = problem;
    round_fields(rounded);
  }
  return rounded;
}

std::size_t ProblemHash::operator()(const Problem& p) const noexcept { return hash_of_fields(p); }

}  // namespace attnforge
