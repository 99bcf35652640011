#include "generator/problem/bucket.h"

#include <bit>

#include "generator/parts/part.h"
#include "generator/problem/fields.h"

namespace attnforge {

/// Monotone and idempotent, so that equal lengths stay equal and the longer one never becomes the
/// shorter one.
namespace {

constexpr std::int64_t kFewTokens = 16;

/// Up to `fine` to powers of two: a few new tokens want tiles for each number of rows. Then in
/// quarters of them.
std::int64_t rounded(std::int64_t seqlen, std::uint64_t fine) {
  if (seqlen <= 1) return seqlen;
  const auto length = static_cast<std::uint64_t>(seqlen);
  if (length > kFewTokens && length <= 64) return 64;
  if (length <= fine) return static_cast<std::int64_t>(std::bit_ceil(length));
  const std::uint64_t step = std::bit_floor(length) / 4;
  return static_cast<std::int64_t>((length + step - 1) / step * step);
}

}  // namespace

std::int64_t bucket_seqlen(std::int64_t seqlen) { return rounded(seqlen, 128); }

std::int64_t bucket_keys(std::int64_t seqlen_q, std::int64_t seqlen_kv) {
  return rounded(seqlen_kv, seqlen_q <= kFewTokens ? 1024 : 128);
}

std::int64_t bucket_batch(std::int64_t batch) {
  if (batch <= 2) return batch;
  const auto above = static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(batch)));
  return batch <= above / 4 * 3 ? above / 4 * 3 : above;
}

Problem bucket(const Problem& problem) {
  // Of all batch_invariant buckets: what is chosen for it serves one sequence and many.
  constexpr std::int64_t kBatchOfAll = 4;
  Problem result = problem;
  round_fields(result);
  result.batch = problem.batch_invariant && problem.batch > 0 ? kBatchOfAll
                                                              : bucket_batch(problem.batch);
  result.seqlen_q = bucket_seqlen(problem.seqlen_q);
  result.seqlen_kv = bucket_keys(problem.seqlen_q, problem.seqlen_kv);
  for_each_part<&ProblemPart::round>(problem, problem, result);
  // Each limit is on the grid, but their products are not: such giants keep their sizes and stay
  // valid.
  if (!products_within_limits(result)) {
    result = problem;
    round_fields(result);
  }
  return result;
}

std::size_t ProblemHash::operator()(const Problem& p) const noexcept { return hash_of_fields(p); }

}  // namespace attnforge
