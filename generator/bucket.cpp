// bucket.cpp - the grid that problems are rounded to before they are tuned or looked up.
#include "generator/bucket.h"

#include <algorithm>
#include <bit>

#include "generator/problem_fields.h"

namespace attnforge {

/// Monotone and idempotent, so that equal lengths stay equal and the longer one never becomes the
/// shorter one.
std::int64_t bucket_seqlen(std::int64_t seqlen) {
  if (seqlen <= 1) return seqlen;
  if (seqlen <= 16) return 16;
  if (seqlen <= 64) return 64;
  const auto length = static_cast<std::uint64_t>(seqlen);
  if (length <= 1024) return static_cast<std::int64_t>(std::bit_ceil(length));
  const std::uint64_t step = std::bit_floor(length) / 4;
  return static_cast<std::int64_t>((length + step - 1) / step * step);
}

std::int64_t bucket_batch(std::int64_t batch) {
  return batch == 0 ? 0
                    : static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(batch)));
}

namespace {

/// Of tensors with room for `most` tokens, as full as those of `tokens` in `room` are, up to a
/// power of two; 0: full.
std::int64_t round_tokens(std::int64_t tokens, std::int64_t room, std::int64_t most) {
  if (tokens == 0 || room == 0) return 0;
  const int halvings = std::bit_width(static_cast<std::uint64_t>(room / tokens)) - 1;
  return halvings <= 0 ? 0 : std::max<std::int64_t>(1, most >> halvings);
}

/// Of all batch_invariant problems: what is chosen for it serves one sequence and many.
constexpr std::int64_t kBatchOfAll = 4;

}  // namespace

Problem bucket(const Problem& problem) {
  Problem result = problem;
  for (const ProblemField& field : problem_fields()) {
    if (field.round != nullptr) field.round(result);
  }
  Problem rounded = result;
  rounded.batch = problem.batch_invariant && problem.batch > 0 ? kBatchOfAll
                                                               : bucket_batch(problem.batch);
  rounded.seqlen_q = bucket_seqlen(problem.seqlen_q);
  rounded.seqlen_kv = bucket_seqlen(problem.seqlen_kv);
  rounded.tokens_q = round_tokens(problem.tokens_q, problem.batch * problem.seqlen_q,
                                  rounded.batch * rounded.seqlen_q);
  rounded.tokens_kv = round_tokens(problem.tokens_kv, problem.batch * problem.seqlen_kv,
                                   rounded.batch * rounded.seqlen_kv);
  if (problem.batch_invariant) rounded.tokens_q = rounded.tokens_kv = 0;  // full
  if (rounded.mask_batch != 1) rounded.mask_batch = rounded.batch;
  // Each limit is on the grid, but their products are not: such giants keep their sizes and stay
  // valid.
  return products_within_limits(rounded) ? rounded : result;
}

std::size_t ProblemHash::operator()(const Problem& p) const noexcept { return hash_of_fields(p); }

}  // namespace attnforge
