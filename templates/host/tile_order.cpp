// tile_order.cpp - groups of heads for the L2 and for an even end.
#include "templates/host/tile_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/shape.h"
#include "generator/user_code/mask_windows.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

/// Bytes of K and V of one K/V head.
std::int64_t kv_head_bytes(const Problem& problem) {
  return problem.seqlen_kv * key_bytes(problem);
}

}  // namespace

std::int64_t key_bytes(const Problem& problem) {
  return bytes_of(problem.dtype_k, problem.head_dim) +
         bytes_of(problem.dtype_v, problem.head_dim_v);
}

TileOrder tile_order(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                     bool heavy_last) {
  const bool packed = pack_gqa > 1;
  const std::int64_t heads = problem.batch * (packed ? problem.num_heads_kv : problem.num_heads_q);
  const std::int64_t head_bytes = kv_head_bytes(problem) / (packed ? 1 : gqa_group(problem));
  const std::int64_t wanted = (std::int64_t{head_group_mb} << 20) /
                              std::max<std::int64_t>(1, head_bytes);
  // There are as many groups as would be full; the heads left over are spread among them. A small
  // last group would begin with its heavy tiles when all else is done.
  const std::int64_t groups = std::max<std::int64_t>(heads / std::max<std::int64_t>(wanted, 1), 1);
  TileOrder order;
  order.m_blocks = static_cast<int>((problem.seqlen_q * pack_gqa + block_m - 1) / block_m);
  order.heads = static_cast<int>(heads);
  order.heads_per_group = std::max(static_cast<int>((heads + groups - 1) / groups), 1);
  order.heavy_last = heavy_last ? 1 : 0;
  return order;
}

TileOrder cuda_core_order(const Problem& problem, int block_m, bool heavy_last) {
  constexpr int kGroupMb = 64;
  return tile_order(problem, block_m, 1, heavy_last ? kGroupMb : 0, heavy_last);
}

std::vector<int> head_groups_mb(const Problem& problem, const DeviceFacts& device) {
  constexpr std::int64_t kMost = 1 << 30;
  const int half_of_l2 = std::max(1, static_cast<int>(device.l2_bytes >> 21));
  const std::int64_t all_bytes = total_tokens(problem).kv * problem.num_heads_kv *
                                 key_bytes(problem);
  const int all = static_cast<int>(std::min((all_bytes >> 20) + 1, kMost));
  if (shape_of(problem).has_tile_queue())
    return all <= half_of_l2 ? std::vector<int>{all} : std::vector<int>{all, half_of_l2};
  if (!key_bounds(problem).right || all <= half_of_l2) return {half_of_l2, 0};
  return {half_of_l2, all};
}

double idle_factor(double blocks, double places) {
  const double rounds = std::max(blocks, 1.0) / places;
  return std::ceil(rounds) / rounds;
}

double idle_factor(const TileOrder& order, double places) {
  // In rounds of the grid; measured on an H200 with 1 to 32 heads of 2048 to 8192 queries a group.
  constexpr double kTail = 0.3, kLateGroup = 0.7, kLateRounds = 1.6;
  const double blocks = double(order.m_blocks) * order.heads, rounds = blocks / places;
  if (!order.heavy_last || rounds <= 1) return idle_factor(blocks, places);
  const int before = (order.heads - 1) / order.heads_per_group * order.heads_per_group;
  const double last_rounds = double(order.m_blocks) * (order.heads - before) / places;
  return 1 + (kTail + kLateGroup * std::max(0.0, 1 - last_rounds / kLateRounds)) / rounds;
}

}  // namespace attnforge
