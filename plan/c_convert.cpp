#include "plan/c_convert.h"

#include "plan/c_struct.h"

namespace attnforge {
namespace {

// Enum values go to the library as they are.
static_assert(static_cast<int>(DType::kFp32) == ATTNFORGE_FP32 &&
              static_cast<int>(DType::kFp16) == ATTNFORGE_FP16 &&
              static_cast<int>(DType::kBf16) == ATTNFORGE_BF16);
static_assert(static_cast<int>(Layout::kBshd) == ATTNFORGE_BSHD &&
              static_cast<int>(Layout::kBhsd) == ATTNFORGE_BHSD &&
              static_cast<int>(Layout::kPackedQkv) == ATTNFORGE_PACKED_QKV);
static_assert(static_cast<int>(Progress::Phase::kCompile) == 0 &&
              static_cast<int>(Progress::Phase::kFinal) == 3);

/// An int that must be one of 0 .. last, as an enum of the library.
template <class Enum>
Enum checked(std::string_view name, std::int32_t value, Enum last) {
  if (value < 0 || value > static_cast<std::int32_t>(last)) {
    throw Error(ErrorCode::kInvalidProblem,
                fmt::format("invalid problem: {}={} must be from 0 to {}", name, value,
                            static_cast<std::int32_t>(last)));
  }
  return static_cast<Enum>(value);
}

bool flag(std::string_view name, std::int32_t value) {
  if (value != 0 && value != 1) {
    throw Error(ErrorCode::kInvalidProblem,
                fmt::format("invalid problem: {}={} must be 0 or 1", name, value));
  }
  return value == 1;
}

}  // namespace

Problem from_c(const attnforge_problem* given) {
  static constexpr attnforge_problem kDefaults = ATTNFORGE_PROBLEM_INIT;
  const attnforge_problem c = read_struct(given, kDefaults, "problem", kFirstProblemBytes);
  if (c.reserved != 0) {
    throw Error(ErrorCode::kInvalidProblem, fmt::format("invalid problem: reserved={} must be 0; "
                                                        "begin with ATTNFORGE_PROBLEM_INIT",
                                                        c.reserved));
  }
  Problem p;
  p.op = checked("op", c.op, Op::kForward);
  p.dtype_q = checked("dtype_q", c.dtype_q, DType::kBf16);
  p.dtype_k = checked("dtype_k", c.dtype_k, DType::kBf16);
  p.dtype_v = checked("dtype_v", c.dtype_v, DType::kBf16);
  p.dtype_o = checked("dtype_o", c.dtype_o, DType::kBf16);
  p.layout = checked("layout", c.layout, Layout::kPackedQkv);
  p.causal = flag("causal", c.causal);
  p.lse = flag("lse", c.lse);
  p.tf32 = flag("tf32", c.tf32);
  p.alignment_bytes = c.alignment_bytes;
  p.batch = c.batch;
  p.num_heads_q = c.num_heads_q;
  p.num_heads_kv = c.num_heads_kv;
  p.seqlen_q = c.seqlen_q;
  p.seqlen_kv = c.seqlen_kv;
  p.head_dim = c.head_dim;
  p.head_dim_v = c.head_dim_v;
  p.window_left = c.window_left;
  p.window_right = c.window_right;
  p.softcap = c.softcap;
  p.softmax_scale = c.softmax_scale;
  p.rope = checked("rope", c.rope, Rope::kHalf);
  p.rope_dim = c.rope_dim;
  validate(p);
  return p;
}

attnforge_problem to_c(const Problem& p) {
  attnforge_problem c = ATTNFORGE_PROBLEM_INIT;
  c.op = static_cast<std::int32_t>(p.op);
  c.dtype_q = static_cast<std::int32_t>(p.dtype_q);
  c.dtype_k = static_cast<std::int32_t>(p.dtype_k);
  c.dtype_v = static_cast<std::int32_t>(p.dtype_v);
  c.dtype_o = static_cast<std::int32_t>(p.dtype_o);
  c.layout = static_cast<std::int32_t>(p.layout);
  c.causal = p.causal ? 1 : 0;
  c.lse = p.lse ? 1 : 0;
  c.tf32 = p.tf32 ? 1 : 0;
  c.alignment_bytes = p.alignment_bytes;
  c.batch = p.batch;
  c.num_heads_q = p.num_heads_q;
  c.num_heads_kv = p.num_heads_kv;
  c.seqlen_q = p.seqlen_q;
  c.seqlen_kv = p.seqlen_kv;
  c.head_dim = p.head_dim;
  c.head_dim_v = p.head_dim_v;
  c.window_left = p.window_left;
  c.window_right = p.window_right;
  c.softcap = p.softcap;
  c.softmax_scale = p.softmax_scale;
  c.rope = static_cast<std::int32_t>(p.rope);
  c.rope_dim = p.rope_dim;
  return c;
}

Tensors from_c(const attnforge_tensors* given) {
  static constexpr attnforge_tensors kDefaults = ATTNFORGE_TENSORS_INIT;
  const attnforge_tensors c = read_struct(given, kDefaults, "tensors", kFirstTensorsBytes);
  // The library only writes to o and lse; its Tensor has one type of pointer for both directions.
  return {.q = {const_cast<void*>(c.q), c.q_stride_batch, c.q_stride_row, c.q_stride_head},
          .k = {const_cast<void*>(c.k), c.k_stride_batch, c.k_stride_row, c.k_stride_head},
          .v = {const_cast<void*>(c.v), c.v_stride_batch, c.v_stride_row, c.v_stride_head},
          .o = {c.o, c.o_stride_batch, c.o_stride_row, c.o_stride_head},
          .lse = {c.lse, c.lse_stride_batch, c.lse_stride_head},
          .rope = {c.rope_cos, c.rope_sin, c.rope_rows, c.rope_offset}};
}

ProgressFunction progress_from_c(attnforge_progress_function callback, void* user, bool* stop) {
  if (callback == nullptr) return {};
  return [callback, user, stop](const Progress& progress) {
    const attnforge_progress c{.struct_size = sizeof(attnforge_progress),
                               .phase = static_cast<std::int32_t>(progress.phase),
                               .done = progress.done,
                               .total = progress.total,
                               .failed = progress.failed,
                               .best_us = progress.best_us,
                               .default_us = progress.default_us,
                               .elapsed_s = progress.elapsed_s,
                               .remaining_s = progress.remaining_s,
                               .best_config = progress.best_config.c_str()};
    if (callback(user, &c) != 0 && stop != nullptr) *stop = true;
  };
}

}  // namespace attnforge
