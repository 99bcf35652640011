// merge_states.cpp - merge_states(): checks, a kernel for each kind of rows, a launch.
#include "attnforge/merge_states.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/error.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/ops/kernels.h"
#include "plan/ops/merge_states.h"
#include "runtime/nvtx.h"

namespace attnforge {
namespace {

static_assert(kMostMergedStates == kMostStates);
constexpr std::int64_t kMostRows = std::int64_t{1} << 30;

[[noreturn]] void refuse_merge(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_sizes(const StateSizes& sizes, std::size_t parts) {
  if (parts < 1 || parts > kMostStates) {
    refuse_merge(
        fmt::format("merge_states got {} parts; it merges 1 to {}, and results can be merged "
                    "again",
                    parts, kMostStates));
  }
  if (sizes.head_dim < 8 || sizes.head_dim > 512 || sizes.head_dim % 8 != 0)
    refuse_merge(fmt::format("head_dim={} must be a multiple of 8 from 8 to 512", sizes.head_dim));
  const auto check = [](std::string_view name, std::int64_t size, std::int64_t least) {
    if (size < least || size > kMostRows)
      refuse_merge(fmt::format("{}={} must be from {} to {}", name, size, least, kMostRows));
  };
  check("batch", sizes.batch, 0);
  check("seqlen", sizes.seqlen, 0);
  check("num_heads", sizes.num_heads, 1);
  // Each is at most 2^30: neither product overflows.
  const std::int64_t of_heads = sizes.seqlen * sizes.num_heads;
  if (of_heads > kMostRows || sizes.batch * of_heads > kMostRows) {
    refuse_merge(fmt::format("batch={} times seqlen={} times num_heads={} are more than {} rows",
                             sizes.batch, sizes.seqlen, sizes.num_heads, kMostRows));
  }
}

/// Low bits of all addresses and strides in bytes of o, but for strides of one element.
std::uintptr_t bits_of(const StateSizes& sizes, const Tensor& o, DType dtype) {
  const auto stride = [&](std::int64_t elements, std::int64_t count) {
    return count == 1 ? std::uintptr_t{0}
                      : static_cast<std::uintptr_t>(elements) *
                            static_cast<std::uintptr_t>(size_bytes(dtype));
  };
  return reinterpret_cast<std::uintptr_t>(o.data) | stride(o.stride_batch, sizes.batch) |
         stride(o.stride_row, sizes.seqlen) | stride(o.stride_head, sizes.num_heads);
}

/// Throws for what no kernel could read.
void check_state(const AttentionState& state, std::string_view name, bool needs_lse,
                 std::uintptr_t bits, DType dtype) {
  if (state.o.data == nullptr)
    refuse_merge(fmt::format("o of {} is null; it needs device memory", name));
  if (needs_lse && state.lse.data == nullptr)
    refuse_merge(fmt::format("lse of {} is null; a merge weighs each part by it", name));
  if (reinterpret_cast<std::uintptr_t>(state.lse.data) % sizeof(float) != 0)
    refuse_merge(fmt::format("lse of {} starts at {}, which is not a multiple of 4 bytes", name,
                             fmt::ptr(state.lse.data)));
  if (bits % static_cast<std::uintptr_t>(size_bytes(dtype)) != 0)
    refuse_merge(fmt::format("o of {} starts at {}, which is not a multiple of the {} bytes of {}",
                             name, fmt::ptr(state.o.data), size_bytes(dtype), to_string(dtype)));
}

/// What all rows begin at multiples of.
int alignment_of(std::uintptr_t bits) {
  int alignment = 16;
  while (bits % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

StateRef state_ref(const AttentionState& state) {
  return {{state.o.data, state.o.stride_batch, state.o.stride_row, state.o.stride_head},
          state.lse.data,
          state.lse.stride_batch,
          state.lse.stride_head};
}

std::unique_ptr<MergeKernel> load_merge(const MergeCode& code, DeviceState& state,
                                        bool allow_compile) {
  LaunchStep step = merge_step(code);
  const std::string purpose = fmt::format("merges {} states of head_dim {}", to_string(code.dtype),
                                          code.head_dim);
  std::unique_ptr<LoadedKernels> kernels = load_side_kernels(merge_source(code), {.steps = {step}},
                                                             purpose, allow_compile, state);
  return std::make_unique<MergeKernel>(MergeKernel{std::move(kernels), std::move(step)});
}

}  // namespace

void merge_states(const StateSizes& sizes, std::span<const AttentionState> parts,
                  const AttentionState& result, Device& device, void* stream, bool allow_compile) {
  check_sizes(sizes, parts.size());
  if (sizes.batch == 0 || sizes.seqlen == 0) return;
  MergeParams params{};
  std::uintptr_t bits = bits_of(sizes, result.o, sizes.dtype_o);
  check_state(result, "the result", false, bits, sizes.dtype_o);
  params.result = state_ref(result);
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const std::uintptr_t own = bits_of(sizes, parts[i].o, sizes.dtype);
    if (own % static_cast<std::uintptr_t>(size_bytes(sizes.dtype)) != 0 ||
        parts[i].o.data == nullptr || parts[i].lse.data == nullptr ||
        reinterpret_cast<std::uintptr_t>(parts[i].lse.data) % sizeof(float) != 0)
      check_state(parts[i], fmt::format("part {}", i), true, own, sizes.dtype);
    bits |= own;
    params.parts[i] = state_ref(parts[i]);
  }
  params.count = static_cast<int>(parts.size());
  params.batch = static_cast<int>(sizes.batch);
  params.num_heads = static_cast<int>(sizes.num_heads);
  params.seqlen = static_cast<int>(sizes.seqlen);

  DeviceState& state = state_of(device);
  const MergeCode code{.dtype = sizes.dtype,
                       .dtype_o = sizes.dtype_o,
                       .head_dim = sizes.head_dim,
                       .alignment = alignment_of(bits)};
  const NvtxRange range("attnforge merge");
  const ContextScope scope(state.context);
  const MergeKernel* kernel = state.merges.find(code);
  if (kernel == nullptr)
    kernel = &state.merges.find_or_make(
        code, [](const MergeKernel&) { return true; },
        [&] { return load_merge(code, state, allow_compile); });
  Dim3 grid;
  grid.x = merge_blocks(sizes.batch * sizes.num_heads * sizes.seqlen, params.count);
  kernel->kernels->at(kernel->step.kernel)
      .launch(kernel->step, grid, std::as_bytes(std::span(&params, 1)),
              static_cast<CUstream>(stream));
}

}  // namespace attnforge
