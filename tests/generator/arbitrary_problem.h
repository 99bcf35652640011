// arbitrary_problem.h - valid problems for property tests, small sizes as likely as large ones.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <ostream>

#include "attnforge/problem.h"

namespace attnforge {

inline std::ostream& operator<<(std::ostream& out, const Problem& problem) {
  return out << '"' << to_string(problem) << '"';
}

/// Up to 2^bits - 1, each number of bits equally likely.
inline std::int64_t arbitrary_size(int bits) {
  const int used = *rc::gen::inRange(0, bits + 1);
  return *rc::gen::inRange<std::int64_t>(0, std::int64_t{1} << used);
}

inline Problem arbitrary_problem() {
  Problem p;
  const auto dtype = rc::gen::element(DType::kFp32, DType::kFp16, DType::kBf16);
  p.dtype_q = p.dtype_k = p.dtype_v = p.dtype_o = *dtype;
  if (*rc::gen::arbitrary<bool>()) p.dtype_o = *dtype;
  p.layout = *rc::gen::element(Layout::kBshd, Layout::kBhsd, Layout::kPackedQkv);
  p.causal = *rc::gen::arbitrary<bool>();
  p.lse = *rc::gen::arbitrary<bool>();
  p.alignment_bytes = *rc::gen::element(4, 8, 16);
  p.batch = arbitrary_size(12);
  p.num_heads_kv = 1 + arbitrary_size(6);
  p.num_heads_q = p.num_heads_kv * *rc::gen::inRange<std::int64_t>(1, 9);
  p.seqlen_q = arbitrary_size(20);
  p.seqlen_kv = arbitrary_size(20);
  p.head_dim = 8 * *rc::gen::inRange(1, 65);
  p.head_dim_v = *rc::gen::arbitrary<bool>() ? p.head_dim : 8 * *rc::gen::inRange(1, 65);
  if (p.layout == Layout::kPackedQkv) {
    p.seqlen_kv = p.seqlen_q;
    p.head_dim_v = p.head_dim;
  } else if (*rc::gen::arbitrary<bool>()) {
    p.dtype_k = *dtype;
    p.dtype_v = *dtype;
  }
  const bool fp32 = p.dtype_q == DType::kFp32 && p.dtype_k == DType::kFp32 &&
                    p.dtype_v == DType::kFp32;
  if (fp32) p.tf32 = *rc::gen::arbitrary<bool>();
  if (*rc::gen::arbitrary<bool>()) p.window_left = arbitrary_size(20);
  if (*rc::gen::arbitrary<bool>()) p.window_right = p.causal ? 0 : arbitrary_size(20);
  const auto factor = rc::gen::map(rc::gen::inRange(1, 1 << 24),
                                   [](int n) { return static_cast<float>(n) / 65536.0f; });
  if (*rc::gen::arbitrary<bool>()) p.softcap = *factor;
  if (*rc::gen::arbitrary<bool>()) p.softmax_scale = 1.0f / *factor;
  p.rope = *rc::gen::element(Rope::kNone, Rope::kInterleaved, Rope::kHalf);
  p.lengths = p.rope != Rope::kNone
                  ? Lengths::kFixed
                  : *rc::gen::element(Lengths::kFixed, Lengths::kPacked, Lengths::kUsed);
  if (p.lengths == Lengths::kPacked) {
    constexpr std::int64_t kMost = std::int64_t{1} << 30;
    const std::int64_t room_q = p.batch * p.seqlen_q, room_kv = p.batch * p.seqlen_kv;
    if (room_q > kMost || *rc::gen::arbitrary<bool>())
      p.tokens_q = std::min(room_q, 1 + arbitrary_size(30));
    if (room_kv > kMost || *rc::gen::arbitrary<bool>())
      p.tokens_kv = std::min(room_kv, 1 + arbitrary_size(30));
    if (p.layout == Layout::kPackedQkv) p.tokens_kv = p.tokens_q;
  }
  if (p.rope != Rope::kNone) p.rope_dim = 8 * *rc::gen::inRange(0, p.head_dim / 8 + 1);
  return p;
}

}  // namespace attnforge
