#include "tests/fuzz/any_problem.h"

#include <algorithm>

namespace attnforge::fuzz {
namespace {

const std::vector<DType> kDTypes = {DType::kFp16, DType::kBf16, DType::kFp32};

/// Those that kernels are made for as likely as all others together.
int any_head_dim(Bytes& bytes) {
  static const std::vector<int> kUsual = {32, 40, 64, 72, 80, 96, 128, 160, 192, 256, 512};
  return bytes.flag() ? bytes.among(kUsual) : 8 * static_cast<int>(bytes.between(1, 64));
}

float any_factor(Bytes& bytes) {
  return static_cast<float>(bytes.between(1, 65535)) / static_cast<float>(bytes.between(1, 65535));
}

}  // namespace

Problem any_problem(Bytes& bytes, const MostSizes& most) {
  Problem p;
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = bytes.among(kDTypes);
  if (bytes.byte() % 8 == 0) p.dtype_o = bytes.among(kDTypes);
  p.layout = bytes.among(std::vector{Layout::kBshd, Layout::kBhsd, Layout::kPackedQkv});
  p.causal = bytes.flag();
  p.lse = bytes.flag();
  p.batch = bytes.byte() % 32 == 0 ? 0 : std::max<std::int64_t>(1, bytes.size(most.batch_bits));
  p.num_heads_kv = std::max<std::int64_t>(1, bytes.size(most.heads_bits));
  p.num_heads_q = p.num_heads_kv * bytes.between(1, 8);
  p.seqlen_q = bytes.size(most.seqlen_bits);
  p.seqlen_kv = bytes.flag() ? p.seqlen_q : bytes.size(most.seqlen_bits);
  p.head_dim = any_head_dim(bytes);
  p.head_dim_v = bytes.byte() % 4 != 0 ? p.head_dim : any_head_dim(bytes);
  if (p.layout == Layout::kPackedQkv) {
    p.seqlen_kv = p.seqlen_q;
    p.head_dim_v = p.head_dim;
  } else if (bytes.byte() % 8 == 0) {
    p.dtype_k = bytes.among(kDTypes);
    p.dtype_v = bytes.among(kDTypes);
  }
  const auto all = {p.dtype_q, p.dtype_k, p.dtype_v};
  if (std::all_of(all.begin(), all.end(), [](DType dtype) { return dtype == DType::kFp32; }))
    p.tf32 = bytes.flag();
  p.alignment_bytes = bytes.among(std::vector{16, 16, 16, 8, 4, 2});
  for (const DType dtype : {p.dtype_q, p.dtype_k, p.dtype_v, p.dtype_o})
    p.alignment_bytes = std::max(p.alignment_bytes, size_bytes(dtype));
  if (bytes.byte() % 4 == 0) p.window_left = bytes.size(most.seqlen_bits);
  if (bytes.byte() % 4 == 0) p.window_right = p.causal ? 0 : bytes.size(most.seqlen_bits);
  if (bytes.byte() % 8 == 0) p.softcap = any_factor(bytes);
  if (bytes.byte() % 8 == 0) p.softmax_scale = any_factor(bytes);
  p.rope = bytes.among(std::vector{Rope::kNone, Rope::kNone, Rope::kNone, Rope::kNone, Rope::kNone,
                                   Rope::kNone, Rope::kInterleaved, Rope::kHalf});
  if (p.rope != Rope::kNone) p.rope_dim = 8 * static_cast<int>(bytes.between(0, p.head_dim / 8));
  p.lengths = bytes.among(std::vector{Lengths::kFixed, Lengths::kFixed, Lengths::kFixed,
                                      Lengths::kPacked, Lengths::kUsed});
  if (p.rope != Rope::kNone) p.lengths = Lengths::kFixed;
  if (p.lengths == Lengths::kPacked && bytes.flag()) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    const bool one = p.layout == Layout::kPackedQkv;
    p.tokens_q = bytes.between(0, std::min(kMost, p.batch * p.seqlen_q));
    p.tokens_kv = one ? p.tokens_q : bytes.between(0, std::min(kMost, p.batch * p.seqlen_kv));
  }
  while (p.batch * p.num_heads_q > 0) {  // a product of sizes may still be too large
    try {
      validate(p);
      break;
    } catch (const Error&) {
      if (p.batch <= 1 && p.seqlen_q <= 1) broken("not a valid problem: " + to_string(p));
      p.tokens_q = p.tokens_kv = 0;
      p.batch = std::max<std::int64_t>(1, p.batch / 2);
      p.seqlen_q /= 2;
      p.seqlen_kv = p.layout == Layout::kPackedQkv ? p.seqlen_q : p.seqlen_kv / 2;
    }
  }
  return p;
}

}  // namespace attnforge::fuzz
