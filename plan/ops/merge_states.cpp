// merge_states.cpp - merge_states(): a problem of the sizes and the alignment, its plan, a run.
#include "attnforge/merge_states.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"

namespace attnforge {
namespace {

/// Low bits of all addresses and strides in bytes of o, but for strides of one element.
std::uintptr_t bits_of(const StateSizes& sizes, const Tensor& o, DType dtype) {
  const auto stride = [&](std::int64_t elements, std::int64_t count) {
    return static_cast<std::uintptr_t>(count == 1 ? 0 : bytes_of(dtype, elements));
  };
  return reinterpret_cast<std::uintptr_t>(o.data) | stride(o.stride_batch, sizes.batch) |
         stride(o.stride_row, sizes.seqlen) | stride(o.stride_head, sizes.num_heads);
}

}  // namespace

void merge_states(const StateSizes& sizes, std::span<const AttentionState> parts,
                  const AttentionState& result, Device& device, void* stream, bool allow_compile) {
  if (parts.empty() || parts.size() > kMostMergedStates) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("merge_states got {} parts; it merges 1 to {}, and results can be "
                            "merged again",
                            parts.size(), kMostMergedStates));
  }
  std::uintptr_t bits = bits_of(sizes, result.o, sizes.dtype_o) | 16;
  for (const AttentionState& part : parts) bits |= bits_of(sizes, part.o, sizes.dtype);
  // That of elements is for the run to check.
  const int alignment = std::max({static_cast<int>(bits & (~bits + 1)),
                                  static_cast<int>(bytes_of(sizes.dtype, 1)),
                                  static_cast<int>(bytes_of(sizes.dtype_o, 1))});
  Problem problem;
  problem.op = Op::kMerge;
  problem.dtype_q = problem.dtype_k = problem.dtype_v = sizes.dtype;
  problem.dtype_o = sizes.dtype_o;
  problem.lse = result.lse.data != nullptr;
  problem.parts = static_cast<int>(parts.size());
  problem.alignment_bytes = alignment;
  problem.batch = sizes.batch;
  problem.num_heads_q = problem.num_heads_kv = sizes.num_heads;
  problem.seqlen_q = problem.seqlen_kv = sizes.seqlen;
  problem.head_dim = problem.head_dim_v = sizes.head_dim;
  make_plan(problem, device, {.allow_compile = allow_compile})
      .run({.o = result.o, .lse = result.lse, .parts = parts.data()}, nullptr, stream);
}

}  // namespace attnforge
