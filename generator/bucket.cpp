// bucket.cpp - the grid that problems are rounded to before they are tuned or looked up.
#define XXH_INLINE_ALL  // a hash of a known size is a few instructions in place
#include "generator/bucket.h"

#include <xxhash.h>

#include <algorithm>
#include <array>
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

constexpr float
    kBucketSoftcap = 30.0f;  // a usual value; only whether there is one changes the kernel

/// To the nearest power of two: from the square root of 2 on, the mantissa's bits become one more
/// of the exponent.
float round_density(const Problem& p) {
  constexpr std::uint32_t kMantissa = (1u << 23) - 1, kRootOfTwo = 0x3504F3;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(effective_density(p)));
  const auto nearest = std::bit_cast<float>((bits + kMantissa + 1 - kRootOfTwo) & ~kMantissa);
  return std::clamp(nearest, 0x1p-19f, 1.0f);
}

std::uint64_t bits_of(float value) {
  return std::bit_cast<std::uint32_t>(value + 0.0f);  // -0 equals 0, so it must hash like it
}

}  // namespace

Problem bucket(const Problem& problem) {
  Problem result = problem;
  result.layout = Layout::kBshd;
  result.softmax_scale = 0.0f;
  if (result.rope_dim == result.head_dim) result.rope_dim = 0;
  result.fp32_gradients = has_wider_gradients(problem);
  if (result.softcap > 0.0f) result.softcap = kBucketSoftcap;
  if (has_block_mask(result)) result.density = round_density(result);
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

std::size_t ProblemHash::operator()(const Problem& p) const noexcept {
  const auto byte = [](auto value, int place) {
    return static_cast<std::uint64_t>(value) << (8 * place);
  };
  const auto at = [](auto value, int bit) { return static_cast<std::uint64_t>(value) << bit; };
  // Eight words are hashed in half the time of fourteen; what shares one hardly ever collides.
  const auto both = [](auto a, auto b) {
    return static_cast<std::uint64_t>(a) << 32 ^ static_cast<std::uint64_t>(b);
  };
  const std::array<std::uint64_t, 8> words = {
      byte(p.op, 0) | byte(p.dtype_q, 1) | byte(p.dtype_k, 2) | byte(p.dtype_v, 3) |
          byte(p.dtype_o, 4) | byte(p.layout, 5) | byte(p.causal, 6) | byte(p.lse, 7),
      byte(p.alignment_bytes, 0) | byte(p.mask_block_q, 1) | byte(p.mask_block_kv, 2) |
          byte(p.mask_bits | p.batch_invariant << 1 | p.deterministic << 2 | p.accumulate << 3 |
                   p.dlse << 4 | p.fp32_gradients << 5,
               3) |
          byte(p.tf32, 4) | byte(p.lengths, 5) | byte(p.rope, 6) | byte(p.sinks, 7),
      both(p.num_heads_q, p.num_heads_kv) ^ static_cast<std::uint64_t>(p.batch) << 16,
      both(p.seqlen_q, p.seqlen_kv),
      both(p.head_dim, p.head_dim_v) ^ at(p.rope_dim, 16) ^ at(p.page_size, 44),
      both(p.tokens_q, p.tokens_kv) ^ at(p.mask_heads, 20) ^ at(p.mask_batch, 40),
      both(p.window_left, p.window_right),
      both(bits_of(p.softcap), bits_of(p.softmax_scale)) ^ at(bits_of(p.density), 16),
  };
  std::uint64_t hash = XXH3_64bits(words.data(), sizeof(words));
  std::uint64_t number = 0;  // of a text: the same one elsewhere is another problem
  for (const std::string* text : {&p.score, &p.mask, &p.args, &p.dargs}) {
    ++number;
    if (!text->empty()) hash = XXH3_64bits_withSeed(text->data(), text->size(), hash + number);
  }
  return hash;
}

}  // namespace attnforge
