// fwd_params.cpp - Problem and Tensors to FwdParams.
#include "templates/host/fwd_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <utility>

#include "attnforge/error.h"
#include "templates/host/tile_order.h"

namespace attnforge {
namespace {

static_assert(std::is_trivially_copyable_v<FwdParams> && sizeof(FwdParams) <= kMaxParamsBytes);

int window_bound(std::int64_t bound) {
  return bound < 0 ? kOpenWindow : static_cast<int>(std::min<std::int64_t>(bound, kOpenWindow));
}

TensorRef tensor_ref(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}

}  // namespace

FwdParams fwd_params(const Problem& problem) {
  const Window window = effective_window(problem);
  FwdParams params{};
  params.batch = static_cast<int>(problem.batch);
  params.num_heads_q = static_cast<int>(problem.num_heads_q);
  params.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  params.seqlen_q = static_cast<int>(problem.seqlen_q);
  params.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  params.window_left = window_bound(window.left);
  params.window_right = window_bound(window.right);
  params.softmax_scale = effective_softmax_scale(problem);
  params.softcap = problem.softcap;
  return params;
}

int gqa_group(const Problem& problem) {
  return static_cast<int>(problem.num_heads_q / problem.num_heads_kv);
}

std::string shape_name(int dtype, int head_dim, int head_dim_v, int block_m, int block_n) {
  const std::string dims = head_dim == head_dim_v ? fmt::format("d{}", head_dim)
                                                  : fmt::format("d{}v{}", head_dim, head_dim_v);
  return fmt::format("{}_{}_{}x{}", to_string(static_cast<DType>(dtype)), dims, block_m, block_n);
}

std::int64_t query_tiles(const Problem& problem, int block_m) {
  return (problem.seqlen_q + block_m - 1) / block_m * problem.batch * problem.num_heads_q;
}

std::string too_many_query_tiles(const Problem& problem, int block_m) {
  const std::int64_t blocks = query_tiles(problem, block_m);
  if (blocks <= kMaxGridX) return "";
  return fmt::format("needs {} thread blocks, more than a grid can have", blocks);
}

Launch launch_of_tiles(const TileOrder& order, std::string symbol, int num_threads, int smem_bytes,
                       std::span<const std::byte> params) {
  const std::int64_t blocks = std::int64_t{order.heads} * order.m_blocks;
  Launch result;
  if (blocks == 0) return result;
  ATTNFORGE_ASSERT(blocks <= kMaxGridX, "supports() lets no larger grid through");
  LaunchStep step;
  step.kernel = std::move(symbol);
  step.grid.x = static_cast<unsigned>(blocks);
  step.block.x = static_cast<unsigned>(num_threads);
  step.smem_bytes = smem_bytes;
  step.params.assign(params.begin(), params.end());
  result.steps.push_back(std::move(step));
  return result;
}

Launch tiled_launch(const Problem& problem, const TiledKernel& kernel) {
  // CUDA cores take their time over K and V: an even end under a causal mask counts, the L2 less.
  constexpr int kGroupMb = 64;
  const TileOrder order = tile_order(problem, kernel.block_m, 1, kernel.right_bound ? kGroupMb : 0,
                                     kernel.right_bound);
  return launch_of_tiles<FwdTiledParams>(problem, order, kernel.symbol, kernel.num_threads,
                                         kernel.smem_bytes);
}

void bind_fwd(const LaunchStep& step, const Tensors& tensors, void* /*workspace*/,
              std::span<std::byte> out) {
  ATTNFORGE_ASSERT(step.params.size() >= sizeof(FwdParams) && out.size() == step.params.size(),
                   "the argument of a forward kernel begins with FwdParams");
  FwdParams params;
  std::memcpy(&params, step.params.data(), sizeof(params));
  params.q = tensor_ref(tensors.q);
  params.k = tensor_ref(tensors.k);
  params.v = tensor_ref(tensors.v);
  params.o = tensor_ref(tensors.o);
  params.lse = tensors.lse;
  params.lse_stride_batch = tensors.lse_stride_batch;
  params.lse_stride_head = tensors.lse_stride_head;
  std::memcpy(out.data(), &params, sizeof(params));
  std::memcpy(out.data() + sizeof(params), step.params.data() + sizeof(params),
              out.size() - sizeof(params));
}

void bind_fwd_rope(const LaunchStep& step, const Tensors& tensors, void* workspace,
                   std::span<std::byte> out, std::size_t rope_begin) {
  bind_fwd(step, tensors, workspace, out);
  ATTNFORGE_ASSERT(rope_begin + sizeof(RopeParams) <= out.size(), "RopeParams are in the argument");
  FwdParams params;
  std::memcpy(&params, out.data(), sizeof(params));
  const std::int64_t query_0 = tensors.rope_offset + tensors.rope_query_shift + params.seqlen_kv -
                               params.seqlen_q;
  const RopeParams rope{.cos = tensors.rope_cos,
                        .sin = tensors.rope_sin,
                        .q_offset = static_cast<int>(query_0),
                        .k_offset = static_cast<int>(tensors.rope_offset)};
  std::memcpy(out.data() + rope_begin, &rope, sizeof(rope));
}

}  // namespace attnforge
