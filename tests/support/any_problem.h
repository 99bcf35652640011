// any_problem.h - valid problems over all parts, the one generator of them: what decides is a
// fuzzer's bytes or rapidcheck (arbitrary_problem.h), which shrinks. A new part belongs here.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "attnforge/problem.h"

namespace attnforge::test {

/// The most of each size, as powers of two; of query heads there are up to eight times as many.
struct MostSizes {
  int batch_bits = 12;
  int heads_bits = 6;
  int seqlen_bits = 20;
  bool gradients = true;  // backward problems too
  // What it may cost who computes it (flops()) and has its tensors (minimum_bytes()): lengths,
  // batch and heads are halved until it is so.
  double flops = std::numeric_limits<double>::infinity();
  double bytes = std::numeric_limits<double>::infinity();
};

/// 2^-16 to 2^16.
template <class Choices>
float any_factor(Choices& choices) {
  const auto above = static_cast<float>(choices.between(1, 65535));
  return above / static_cast<float>(choices.between(1, 65535));
}

/// Those that kernels are made for as likely as all others together.
template <class Choices>
int any_head_dim(Choices& choices) {
  static const std::vector<int> kUsual = {32, 40, 64, 72, 80, 96, 128, 160, 192, 256, 512};
  return choices.one_in(2) ? 8 * static_cast<int>(choices.between(1, 64)) : choices.among(kUsual);
}

template <class Choices>
void choose_dtypes(Choices& choices, Problem& p) {
  static const std::vector<DType> kDTypes = {DType::kFp16, DType::kBf16, DType::kFp32};
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = choices.among(kDTypes);
  if (choices.one_in(8)) p.dtype_o = choices.among(kDTypes);
  if (p.layout != Layout::kPackedQkv && choices.one_in(8)) {
    p.dtype_k = choices.among(kDTypes);
    p.dtype_v = choices.among(kDTypes);
  }
  const auto inputs = {p.dtype_q, p.dtype_k, p.dtype_v};
  if (std::all_of(inputs.begin(), inputs.end(), [](DType d) { return d == DType::kFp32; }))
    p.tf32 = choices.one_in(2);
  p.alignment_bytes = choices.among(std::vector{16, 16, 16, 8, 4, 2});
  for (const DType dtype : {p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o})
    p.alignment_bytes = std::max(p.alignment_bytes, static_cast<int>(bytes_of(dtype, 1)));
}

/// Sizes of any number of bits, and groups of any size.
template <class Choices>
void choose_any_sizes(Choices& choices, const MostSizes& most, Problem& p) {
  const auto at_least_1 = [](std::int64_t size) { return std::max<std::int64_t>(1, size); };
  p.batch = choices.one_in(32) ? 0 : at_least_1(choices.size(most.batch_bits));
  p.num_heads_kv = at_least_1(choices.size(most.heads_bits));
  const std::int64_t largest_group = (std::int64_t{8} << most.heads_bits) / p.num_heads_kv;
  p.num_heads_q = p.num_heads_kv * choices.between(1, choices.one_in(4) ? largest_group : 8);
  p.seqlen_q = choices.size(most.seqlen_bits);
  p.seqlen_kv = choices.one_in(2) ? choices.size(most.seqlen_bits) : p.seqlen_q;
}

/// Heads of models, any batch of a server's, and lengths of prompts, of chunks of them, and of a
/// few new tokens after many keys.
template <class Choices>
void choose_users_sizes(Choices& choices, const MostSizes& most, Problem& p) {
  struct Heads {
    int q, kv;
  };
  static constexpr Heads kModels[] = {{8, 1},   {8, 8},   {12, 1},  {12, 12}, {14, 2},   {16, 16},
                                      {20, 20}, {24, 8},  {25, 25}, {28, 4},  {32, 2},   {32, 8},
                                      {40, 8},  {48, 8},  {48, 1},  {64, 4},  {64, 8},   {71, 1},
                                      {96, 8},  {128, 1}, {128, 8}, {6, 2},   {128, 128}};
  std::vector<Heads> heads = {{1, 1}};
  for (const Heads& each : kModels) {
    if (each.kv <= 1 << most.heads_bits && each.q <= 8 << most.heads_bits) heads.push_back(each);
  }
  const Heads drawn = choices.among(heads);
  p.num_heads_q = drawn.q;
  p.num_heads_kv = drawn.kv;
  p.batch = choices.between(1, std::min<std::int64_t>(200, std::int64_t{1} << most.batch_bits));
  const std::int64_t longest = std::int64_t{1} << most.seqlen_bits;
  p.seqlen_kv = choices.one_in(2) ? choices.between(1, longest) : choices.size(most.seqlen_bits);
  p.seqlen_q = p.seqlen_kv;
  if (choices.one_in(2)) p.seqlen_q = choices.between(1, std::min<std::int64_t>(8, longest));
  if (choices.one_in(4)) p.seqlen_q = choices.between(0, p.seqlen_kv);
}

template <class Choices>
void choose_sizes(Choices& choices, const MostSizes& most, Problem& p) {
  if (choices.one_in(2)) {
    choose_users_sizes(choices, most, p);
  } else {
    choose_any_sizes(choices, most, p);
  }
  p.head_dim = any_head_dim(choices);
  const bool packed = p.layout == Layout::kPackedQkv;
  if (packed) p.seqlen_kv = p.seqlen_q;
  p.head_dim_v = !packed && choices.one_in(4) ? any_head_dim(choices) : p.head_dim;
}

template <class Choices>
void choose_options(Choices& choices, const MostSizes& most, Problem& p) {
  p.causal = choices.one_in(2);
  p.lse = choices.one_in(2);
  if (choices.one_in(4)) p.window_left = choices.size(most.seqlen_bits);
  if (choices.one_in(4)) p.window_right = p.causal ? 0 : choices.size(most.seqlen_bits);
  if (choices.one_in(8)) p.softcap = any_factor(choices);
  if (choices.one_in(8)) p.softmax_scale = any_factor(choices);
  p.sinks = choices.one_in(6);
  if (choices.one_in(4)) p.rope = choices.among(std::vector{Rope::kHalf, Rope::kInterleaved});
  if (p.rope != Rope::kNone) p.rope_dim = 8 * static_cast<int>(choices.between(0, p.head_dim / 8));
}

/// What most calls are: 16 bits, aligned, a head dim of models, few options. Among all parts at
/// once these would be too rare to be tested.
template <class Choices>
void choose_usual(Choices& choices, const MostSizes& most, Problem& p) {
  static const std::vector<int> kHeadDims = {128, 128, 128, 64, 64, 256, 192, 96, 80, 72, 40};
  p.layout = choices.among(std::vector{Layout::kBshd, Layout::kBhsd});
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = choices.among(
      std::vector{DType::kBf16, DType::kFp16});
  choose_users_sizes(choices, most, p);
  p.head_dim = choices.among(kHeadDims);
  p.head_dim_v = p.head_dim == 192 && choices.one_in(2) ? 128 : p.head_dim;
  p.causal = choices.one_in(2);
  p.lse = choices.one_in(3);
  if (choices.one_in(6)) p.window_left = choices.size(most.seqlen_bits);
  if (choices.one_in(12)) p.softcap = any_factor(choices);
  p.sinks = choices.one_in(12);
  if (choices.one_in(12)) p.rope = Rope::kHalf;
}

template <class Choices>
void choose_lengths(Choices& choices, Problem& p) {
  const bool decodes = p.seqlen_q <= 8 && p.seqlen_kv > p.seqlen_q;
  if (p.rope != Rope::kNone || choices.between(0, 2) < (decodes ? 1 : 2)) return;
  p.lengths = choices.among(std::vector{Lengths::kPacked, Lengths::kUsed});
  if (p.lengths == Lengths::kUsed || !choices.one_in(2)) return;
  constexpr std::int64_t kMost = std::int64_t{1} << 30;
  p.tokens_q = choices.between(0, std::min(kMost, p.batch * p.seqlen_q));
  p.tokens_kv = p.layout == Layout::kPackedQkv
                    ? p.tokens_q
                    : choices.between(0, std::min(kMost, p.batch * p.seqlen_kv));
}

/// After the block mask, with which it does not go.
template <class Choices>
void choose_pages(Choices& choices, Problem& p) {
  if (p.lengths == Lengths::kFixed || p.tokens_kv != 0 || p.layout == Layout::kPackedQkv ||
      has_block_mask(p))
    return;
  static const std::vector<int> kPages = {16, 64, 32, 128, 256, 8, 24, 1024, 1, 2, 4};
  if (choices.one_in(2)) p.page_size = choices.among(kPages);
  p.batch_invariant = choices.one_in(6);
}

template <class Choices>
void choose_block_mask(Choices& choices, Problem& p) {
  if (!choices.one_in(4)) return;
  static const std::vector<int> kBlocks = {64, 128, 32, 16};
  p.mask_block_q = choices.among(kBlocks);
  p.mask_block_kv = choices.one_in(2) ? choices.among(kBlocks) : p.mask_block_q;
  p.mask_heads = choices.among(std::vector{std::int64_t{1}, p.num_heads_kv, p.num_heads_q});
  if (p.batch > 1 && choices.one_in(2)) p.mask_batch = p.batch;
  p.mask_bits = choices.one_in(2);
  if (choices.one_in(2)) p.density = static_cast<float>(choices.between(1, 100)) / 100.0f;
}

/// q, k and v of 8 bits.
template <class Choices>
void choose_fp8(Choices& choices, Problem& p) {
  p.dtype_q = p.dtype_k = p.dtype_v = DType::kE4m3;
  p.kv_scale = choices.among(
      std::vector{KvScale::kHead, KvScale::kToken, KvScale::kTensor, KvScale::kNone});
  p.kv_zero = false;
  p.fast_sums = choices.one_in(4);
}

/// Caches of 8 or 4 bits, of one of which v may be without; or q of 8 bits too.
template <class Choices>
void choose_low_bits(Choices& choices, Problem& p) {
  if (p.dtype_q == DType::kFp32 || p.layout == Layout::kPackedQkv || p.rope != Rope::kNone ||
      !choices.one_in(6))
    return;
  static const std::vector<DType> kFormats = {DType::kInt8, DType::kInt4, DType::kE4m3,
                                              DType::kE5m2};
  static const std::vector<KvScale> kScales = {
      KvScale::kToken, KvScale::kGroup64, KvScale::kGroup32, KvScale::kGroup128,
      KvScale::kHead,  KvScale::kTensor,  KvScale::kNone};
  p.dtype_o = p.dtype_q;
  p.dtype_k = p.dtype_v = choices.among(kFormats);
  if (choices.one_in(4)) p.dtype_v = choices.one_in(2) ? choices.among(kFormats) : p.dtype_q;
  p.kv_scale = choices.among(kScales);
  if (p.head_dim % 32 == 0 && p.head_dim_v % 32 == 0 && p.alignment_bytes >= 4 &&
      choices.one_in(5)) {
    p.dtype_k = choices.one_in(2) ? DType::kQ4_0 : DType::kQ8_0;
    p.dtype_v = choices.one_in(4) ? p.dtype_q : (choices.one_in(2) ? DType::kQ4_0 : DType::kQ8_0);
    p.kv_scale = KvScale::kNone;
    return;
  }
  const auto may_have_zeros = [&](DType dtype) {
    return dtype == DType::kInt4 || dtype == p.dtype_q;
  };
  p.kv_zero = p.kv_scale >= KvScale::kToken && may_have_zeros(p.dtype_k) &&
              may_have_zeros(p.dtype_v) && choices.one_in(2);
  if (choices.one_in(4)) choose_fp8(choices, p);
  for (const auto& [dtype, dim] : {std::pair(p.dtype_k, p.head_dim), {p.dtype_v, p.head_dim_v}}) {
    const int row = static_cast<int>(bytes_of(dtype, dim));  // of contiguous ones
    p.alignment_bytes = std::min(p.alignment_bytes, row & -row);
  }
}

/// A backward problem, without what does not go with gradients.
template <class Choices>
void choose_backward(Choices& choices, Problem& p) {
  p.op = Op::kBackward;
  if (is_low_bit(p.dtype_q)) p.dtype_q = p.dtype_o;
  if (has_low_bit_kv(p)) p.dtype_k = p.dtype_v = p.dtype_q;
  p.fast_sums = false;
  p.kv_scale = KvScale::kNone;
  p.kv_zero = false;
  p.lse = p.batch_invariant = false;
  p.rope = Rope::kNone;
  p.rope_dim = p.page_size = 0;
  p.deterministic = choices.one_in(2);
  p.accumulate = choices.one_in(4);
  p.dlse = choices.one_in(4);
  p.fp32_gradients = choices.one_in(4);
  if (p.fp32_gradients) p.alignment_bytes = std::max(p.alignment_bytes, 4);
}

/// A product of sizes may be too large for validate().
inline void halve_until_valid(Problem& p) {
  for (;;) {
    try {
      return validate(p);
    } catch (const Error&) {
      if (p.batch <= 1 && p.seqlen_q <= 1) throw;
      p.tokens_q = p.tokens_kv = 0;
      p.batch = std::max<std::int64_t>(1, p.batch / 2);
      if (p.mask_batch != 1) p.mask_batch = p.batch;
      p.seqlen_q /= 2;
      p.seqlen_kv = p.layout == Layout::kPackedQkv ? p.seqlen_q : p.seqlen_kv / 2;
    }
  }
}

/// Heads as they share keys, but half as many; masks of heads are those of as many heads as before.
inline void halve_heads(Problem& p) {
  const std::int64_t group = p.num_heads_q / p.num_heads_kv;
  const bool for_q = p.mask_heads == p.num_heads_q, for_kv = p.mask_heads == p.num_heads_kv;
  if (p.num_heads_kv > 1) {
    p.num_heads_kv = (p.num_heads_kv + 1) / 2;
    p.num_heads_q = group * p.num_heads_kv;
  } else {
    p.num_heads_q = (p.num_heads_q + 1) / 2;
  }
  if (has_block_mask(p)) p.mask_heads = for_kv ? p.num_heads_kv : for_q ? p.num_heads_q : 1;
}

/// Halves what may be halved, long sequences or large batches first, until `most` allows it.
template <class Choices>
void halve_until_cheap(Choices& choices, const MostSizes& most, Problem& p) {
  constexpr std::int64_t kShort = 64;
  const auto half = [](std::int64_t size) { return (size + 1) / 2; };
  const bool lengths_first = choices.one_in(2);
  while (flops(p) > most.flops || minimum_bytes(p) > most.bytes) {
    const std::int64_t longest = std::max(p.seqlen_q, p.seqlen_kv);
    if (longest > kShort && (lengths_first || p.batch <= 1)) {
      p.seqlen_q = half(p.seqlen_q);
      p.seqlen_kv = half(p.seqlen_kv);
    } else if (p.batch > 1) {
      p.batch = half(p.batch);
      if (p.mask_batch != 1) p.mask_batch = p.batch;
    } else if (p.num_heads_q > 1) {
      halve_heads(p);
    } else if (longest > 1) {
      p.seqlen_q = half(p.seqlen_q);
      p.seqlen_kv = half(p.seqlen_kv);
    } else {
      return;
    }
    p.tokens_q = std::min(p.tokens_q, p.batch * p.seqlen_q);
    p.tokens_kv = std::min(p.tokens_kv, p.batch * p.seqlen_kv);
  }
}

/// Passes validate(), as a problem of any part and size up to `most`. `choices` has
///   bool one_in(int n)                     true once in n times
///   std::int64_t between(least, most)      both included
///   std::int64_t size(int bits)            0 to 2^bits, each number of bits as likely as another
///   T among(const std::vector<T>&)
/// A source that shrinks does so to false, the least, 0 and the first: to the plainest problem.
template <class Choices>
Problem any_problem(Choices& choices, const MostSizes& most = {}) {
  Problem p;
  const bool usual = choices.one_in(2);
  if (usual) {
    choose_usual(choices, most, p);
  } else {
    p.layout = choices.among(std::vector{Layout::kBshd, Layout::kBhsd, Layout::kPackedQkv});
    choose_dtypes(choices, p);
    choose_sizes(choices, most, p);
    choose_options(choices, most, p);
  }
  choose_lengths(choices, p);
  if (!usual || choices.one_in(4)) choose_block_mask(choices, p);
  choose_pages(choices, p);
  choose_low_bits(choices, p);
  if (most.gradients && choices.one_in(4)) choose_backward(choices, p);
  halve_until_valid(p);
  halve_until_cheap(choices, most, p);
  return p;
}

/// The same of backward.
template <class Choices>
Problem any_backward_problem(Choices& choices, MostSizes most = {}) {
  most.gradients = false;  // not by chance
  Problem p = any_problem(choices, most);
  choose_backward(choices, p);
  halve_until_valid(p);
  halve_until_cheap(choices, most, p);
  return p;
}

}  // namespace attnforge::test
