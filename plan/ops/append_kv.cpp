// append_kv.cpp - append_kv(): checks, a kernel for each kind of rows, a launch.
#include "attnforge/append_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/error.h"
#include "plan/checks/input_check.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/ops/append_kv.h"
#include "plan/ops/kernels.h"
#include "runtime/memory.h"
#include "runtime/nvtx.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMostAppendedRows = std::int64_t{1} << 30;

[[noreturn]] void refuse_append(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_append_size(std::string_view name, std::int64_t size, std::int64_t least,
                       std::int64_t most = kMostAppendedRows) {
  if (size < least || size > most)
    refuse_append(fmt::format("{}={} must be from {} to {}", name, size, least, most));
}

void check_multiple_of_8(std::string_view name, int size, int most) {
  if (size < 8 || size > most || size % 8 != 0)
    refuse_append(fmt::format("{}={} must be a multiple of 8 from 8 to {}", name, size, most));
}

int append_rope_dim(const AppendSizes& sizes) {
  return sizes.rope == Rope::kNone ? 0 : sizes.rope_dim == 0 ? sizes.head_dim : sizes.rope_dim;
}

/// New rows of all sequences, or memory for them.
std::int64_t appended_tokens(const AppendSizes& sizes, bool packed) {
  return packed ? sizes.tokens : sizes.batch * sizes.seqlen_new;
}

void check_append_sizes(const AppendSizes& sizes, bool packed) {
  check_multiple_of_8("head_dim", sizes.head_dim, 512);
  check_multiple_of_8("head_dim_v", sizes.head_dim_v, 512);
  check_append_size("batch", sizes.batch, 0);
  check_append_size("seqlen_new", sizes.seqlen_new, 0);
  check_append_size("tokens", sizes.tokens, 0);
  check_append_size("seqlen_kv", sizes.seqlen_kv, 0);
  check_append_size("num_heads_kv", sizes.num_heads_kv, 1, 1 << 16);
  check_append_size("num_heads_q", sizes.num_heads_q, 0, 1 << 16);
  if (sizes.page_size != 0) check_multiple_of_8("page_size", sizes.page_size, 65536);
  if (sizes.rope != Rope::kNone && sizes.rope_dim != 0)
    check_multiple_of_8("rope_dim", sizes.rope_dim, sizes.head_dim);
  if (sizes.rope == Rope::kNone && sizes.rope_dim != 0)
    refuse_append(fmt::format("rope_dim={} goes with a rope, and there is none", sizes.rope_dim));
  if (sizes.rope == Rope::kNone && sizes.num_heads_q != 0) {
    refuse_append(
        fmt::format("num_heads_q={}, but without a rope nothing is done to q; leave it "
                    "out",
                    sizes.num_heads_q));
  }
  // Each is at most 2^30: the product does not overflow.
  if (!packed && sizes.batch * sizes.seqlen_new > kMostAppendedRows) {
    refuse_append(fmt::format("batch={} times seqlen_new={} are more than {} rows", sizes.batch,
                              sizes.seqlen_new, kMostAppendedRows));
  }
}

/// A tensor of an append, whose rows are of `dtype`.
struct AppendTensor {
  std::string_view name;
  const Tensor& tensor;
  std::int64_t batch, rows, heads;  // a stride of one is not read
};

/// Low bits of its address and of all strides in bytes that are read. Throws for what no kernel
/// could read.
std::uintptr_t append_bits(const AppendTensor& t, DType dtype) {
  if (t.tensor.data == nullptr)
    refuse_append(fmt::format("{} is null; it needs device memory", t.name));
  const auto stride = [&](std::int64_t elements, std::int64_t count) {
    return static_cast<std::uintptr_t>(count <= 1 ? 0 : bytes_of(dtype, elements));
  };
  const auto address = reinterpret_cast<std::uintptr_t>(t.tensor.data);
  if (address % static_cast<std::uintptr_t>(bytes_of(dtype, 1)) != 0) {
    refuse_append(fmt::format("{} starts at {}, which is not a multiple of the {} bytes of {}",
                              t.name, fmt::ptr(t.tensor.data), bytes_of(dtype, 1),
                              to_string(dtype)));
  }
  return address | stride(t.tensor.stride_batch, t.batch) | stride(t.tensor.stride_row, t.rows) |
         stride(t.tensor.stride_head, t.heads);
}

void check_ints(std::string_view name, const int* array) {
  if (reinterpret_cast<std::uintptr_t>(array) % alignof(int) != 0)
    refuse_append(
        fmt::format("{} starts at {}, which is not a multiple of 4 bytes", name, fmt::ptr(array)));
}

void check_append_arrays(const AppendSizes& sizes, const AppendTensors& t) {
  check_ints("cu_seqlens", t.cu_seqlens);
  check_ints("used_kv", t.used_kv);
  check_ints("used_kv_after", t.used_kv_after);
  const auto before = reinterpret_cast<std::uintptr_t>(t.used_kv);
  const auto after = reinterpret_cast<std::uintptr_t>(t.used_kv_after);
  const auto bytes = static_cast<std::uintptr_t>(sizes.batch) * sizeof(int);
  if (before != 0 && after != 0 && before != after && before < after + bytes &&
      after < before + bytes)
    refuse_append("used_kv_after overlaps used_kv; let both be one array, or lie apart");
  if (sizes.page_size == 0) return;
  check_ints("pages.table", t.pages.table);
  if (t.pages.table == nullptr) {
    refuse_append(
        fmt::format("pages.table is null, but page_size is {}; it is where each sequence "
                    "has its pages, in device memory",
                    sizes.page_size));
  }
  check_append_size("pages.num_pages", t.pages.num_pages, 0, 2147483647);
}

void check_append_tables(const AppendSizes& sizes, const RopeTables& rope) {
  for (const auto& [name, table] : {std::pair("cos", rope.cos), std::pair("sin", rope.sin)}) {
    if (table == nullptr)
      refuse_append(fmt::format("the table {} of the rope is null; it needs device memory", name));
    if (reinterpret_cast<std::uintptr_t>(table) % 16 != 0)
      refuse_append(
          fmt::format("the table {} of the rope starts at {}, which is not a multiple of "
                      "16 bytes",
                      name, fmt::ptr(table)));
  }
  check_append_size("rope.rows", rope.rows, 0);
  check_append_size("rope.offset", rope.offset, 0);
  if (rope.offset + sizes.seqlen_kv > rope.rows) {
    refuse_append(
        fmt::format("the rope's tables have {} rows, but positions up to seqlen_kv={} "
                    "take rows {} to {}",
                    rope.rows, sizes.seqlen_kv, rope.offset, rope.offset + sizes.seqlen_kv - 1));
  }
}

/// What all rows begin at multiples of. Throws for what no kernel could read.
int append_alignment(const AppendSizes& sizes, const AppendTensors& t, bool packed) {
  const std::int64_t batch = packed ? 1 : sizes.batch,
                     rows = packed ? sizes.tokens : sizes.seqlen_new;
  const std::int64_t pages = sizes.page_size > 0 ? t.pages.num_pages : sizes.batch,
                     rows_of_page = sizes.page_size > 0 ? sizes.page_size : sizes.seqlen_kv;
  std::uintptr_t bits = 0;
  for (const AppendTensor& each :
       {AppendTensor{"k", t.k, batch, rows, sizes.num_heads_kv},
        AppendTensor{"v", t.v, batch, rows, sizes.num_heads_kv},
        AppendTensor{"k_cache", t.k_cache, pages, rows_of_page, sizes.num_heads_kv},
        AppendTensor{"v_cache", t.v_cache, pages, rows_of_page, sizes.num_heads_kv}})
    bits |= append_bits(each, sizes.dtype);
  if (sizes.num_heads_q > 0) {
    bits |= append_bits({"q", t.q, batch, rows, sizes.num_heads_q}, sizes.dtype);
    bits |= append_bits({"rotated_q", t.rotated_q, batch, rows, sizes.num_heads_q}, sizes.dtype);
  }
  int alignment = 16;
  while (bits % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

AppendParams append_params(const AppendSizes& sizes, const AppendTensors& t, bool packed) {
  const auto reference = [](const Tensor& tensor) {
    return TensorRef{tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
  };
  const auto of_rows = [&](const Tensor& tensor) {
    TensorRef rows = reference(tensor);
    if (packed) rows.stride_batch = 0;
    return rows;
  };
  AppendParams p{};
  p.from[kMovedK] = of_rows(t.k);
  p.from[kMovedV] = of_rows(t.v);
  p.to[kMovedK] = reference(t.k_cache);
  p.to[kMovedV] = reference(t.v_cache);
  if (sizes.num_heads_q > 0) {
    p.from[kMovedQ] = of_rows(t.q);
    p.to[kMovedQ] = of_rows(t.rotated_q);
  }
  p.cu_seqlens = t.cu_seqlens;
  p.used = t.used_kv;
  p.used_after = t.used_kv_after;
  if (sizes.page_size > 0) {
    p.table = t.pages.table;
    p.table_stride = t.pages.stride_batch;
    p.page_size = sizes.page_size;
    p.num_pages = static_cast<int>(t.pages.num_pages);
  }
  if (sizes.rope != Rope::kNone) {
    const std::int64_t first = t.rope.offset * (append_rope_dim(sizes) / 2);
    p.cos = t.rope.cos + first;
    p.sin = t.rope.sin + first;
  }
  p.batch = static_cast<int>(sizes.batch);
  p.tokens = static_cast<int>(appended_tokens(sizes, packed));
  p.seqlen_new = static_cast<int>(sizes.seqlen_new);
  p.seqlen_kv = static_cast<int>(sizes.seqlen_kv);
  p.num_heads_kv = static_cast<int>(sizes.num_heads_kv);
  p.num_heads_q = static_cast<int>(sizes.num_heads_q);
  return p;
}

std::unique_ptr<AppendKernel> load_append(const AppendCode& code, DeviceState& state,
                                          bool allow_compile) {
  std::unique_ptr<LoadedKernels> kernels = load_side_kernels(
      append_source(code), {.steps = {append_step(true)}},
      fmt::format("appends rows of head dims {} and {}", code.shape.head_dim,
                  code.shape.head_dim_v),
      allow_compile, state);
  return std::make_unique<AppendKernel>(
      AppendKernel{std::move(kernels), {append_step(false), append_step(true)}});
}

}  // namespace

void append_kv(const AppendSizes& sizes, const AppendTensors& tensors, Device& device, void* stream,
               bool allow_compile) {
  const bool packed = tensors.cu_seqlens != nullptr;
  check_append_sizes(sizes, packed);
  const std::int64_t tokens = appended_tokens(sizes, packed);
  if (sizes.batch == 0) return;
  check_append_arrays(sizes, tensors);
  const bool moves = tokens > 0 && sizes.seqlen_kv > 0;
  if (!moves && tensors.used_kv_after == nullptr) return;
  int alignment = 16;
  if (moves) {
    if (sizes.rope != Rope::kNone) check_append_tables(sizes, tensors.rope);
    alignment = append_alignment(sizes, tensors, packed);
  }
  const AppendCode code{.shape = {.dtype = static_cast<int>(sizes.dtype),
                                  .head_dim = sizes.head_dim,
                                  .head_dim_v = sizes.head_dim_v,
                                  .rope = static_cast<int>(sizes.rope),
                                  .rope_dim = append_rope_dim(sizes)},
                        .alignment = alignment};
  AppendParams params = append_params(sizes, tensors, packed);
  if (!moves) params.tokens = 0;
  DeviceState& state = state_of(device);
  params.work = append_work(code.shape, params.tokens, params.num_heads_kv, params.num_heads_q,
                            state.facts.num_sms);
  const auto queue = static_cast<CUstream>(stream);
  const NvtxRange range("attnforge append");
  const ContextScope scope(state.context);
  if (state.overrides.check_inputs && !is_captured(queue))
    check_arrays(sizes, read_arrays(sizes, tensors, queue));
  const AppendKernel* kernel = state.appends.find(code);
  if (kernel == nullptr) {
    kernel = &state.appends.find_or_make(
        code, [](const AppendKernel&) { return true; },
        [&] {
          state.counters.reserve();
          return load_append(code, state, allow_compile);
        });
  }
  const bool counts = counts_blocks(params);
  if (counts) params.counters = static_cast<AppendCounters*>(state.counters.of(queue, 1));
  Dim3 grid;
  grid.x = append_grid(params.work.blocks);
  const LaunchStep& step = kernel->steps[counts];
  kernel->kernels->at(step.kernel).launch(step, grid, std::as_bytes(std::span(&params, 1)), queue);
}

}  // namespace attnforge
