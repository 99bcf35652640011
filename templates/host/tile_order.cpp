// tile_order.cpp - groups of heads for the L2 and for an even end.
#include "templates/host/tile_order.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/problem/bucket.h"
#include "generator/user_code/mask_windows.h"
#include "templates/host/fwd_params.h"
#include "templates/host/split_counts.h"

namespace attnforge {

std::int64_t key_bytes(const Problem& problem) {
  return bytes_of(problem.dtype_k, problem.head_dim) +
         bytes_of(problem.dtype_v, problem.head_dim_v);
}

TileOrder tile_order(const Problem& problem, int block_m, int pack_gqa, int head_group_mb,
                     bool heavy_last) {
  const bool packed = pack_gqa > 1;
  const std::int64_t heads = problem.batch * (packed ? problem.num_heads_kv : problem.num_heads_q);
  const std::int64_t head_bytes = problem.seqlen_kv * key_bytes(problem) /
                                  (packed ? 1 : gqa_group(problem));
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

double spread_of_rows(const Problem& problem, int block_m, int pack_gqa, double places) {
  constexpr std::int64_t kShortest = 128, kSamples = 8;
  const std::int64_t longest = problem.seqlen_q, most = problem.batch;
  if (longest <= kShortest || most <= 0 || bucket_seqlen(longest) != longest ||
      bucket_batch(most) != most || problem.batch_invariant)
    return 1;
  // Rows of the rounds that the tiles take, for each row that there is.
  const auto rows_each = [&](std::int64_t batch, std::int64_t queries) {
    const std::int64_t rows = queries * pack_gqa;
    const double tiles = double(batch) * double(problem.num_heads_q / pack_gqa) *
                         double((rows + block_m - 1) / block_m);
    return tiles * idle_factor(tiles, places) * block_m / double(batch * rows);
  };
  std::int64_t shortest = longest, least = most;
  while (bucket_seqlen(shortest - 1) == longest)
    shortest -= std::max<std::int64_t>(shortest / 256, 1);
  while (least > 1 && bucket_batch(least - 1) == most) --least;
  const std::int64_t batches = std::min(kSamples, most - least + 1);
  double sum = 0;
  for (std::int64_t i = 0; i < kSamples; ++i)
    for (std::int64_t j = 0; j < batches; ++j)
      sum += rows_each(most - j * (most - least) / std::max<std::int64_t>(batches - 1, 1),
                       longest - i * (longest - shortest) / (kSamples - 1));
  return sum / double(kSamples * batches) / rows_each(most, longest);
}

std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa) {
  const std::int64_t padded = problem.batch *
                              ((problem.seqlen_q * pack_gqa + block_m - 1) / block_m);
  if (problem.lengths != Lengths::kPacked) return padded;
  // The last tile of each sequence may have a single row.
  return std::min(padded, total_tokens(problem).q * pack_gqa / block_m + problem.batch);
}

TileSource tile_source(const Problem& problem, bool key_lists, const QueryTiling& tiling) {
  constexpr std::int64_t kSms = 128;             // of a large GPU
  static const Arch& large = arch_named("90a");  // which GPU it is must not decide
  if (key_lists && tiling.own_list_groups == 0) return TileSource::kList;
  if (tiling.shares) return TileSource::kShares;
  if (problem.lengths == Lengths::kFixed) return TileSource::kSizes;
  const std::int64_t rows = bucket_seqlen(problem.seqlen_q) * tiling.pack_gqa,
                     tiles_of_sequence = (rows + tiling.block_m - 1) / tiling.block_m;
  // Nothing of the batch may decide anything.
  if (problem.batch_invariant)
    return tiles_of_sequence <= 1 ? TileSource::kBound : TileSource::kList;
  const std::int64_t batch = bucket_batch(problem.batch);
  if (tiling.num_splits > 1 && tiles_of_sequence <= 1 && problem.lengths == Lengths::kUsed &&
      batch <= kMostSequencesOfSplits &&
      batch * bucket_keys(problem.seqlen_q, problem.seqlen_kv) <= kMostKeysOfSplits)
    return TileSource::kLengths;
  const std::int64_t tiles = batch * (problem.num_heads_q / tiling.pack_gqa) * tiles_of_sequence;
  return tiles <= kSms * blocks_of_sm(tiling, large) ? TileSource::kBound : TileSource::kList;
}

TileSource tile_source(const Shape& shape, const Problem& typical, const QueryTiling& tiling) {
  Problem problem = typical;
  problem.lengths = static_cast<Lengths>(shape.lengths);
  return tile_source(problem, shape.has_key_lists(), tiling);
}

int blocks_of_sm(const QueryTiling& tiling, const Arch& arch) {
  if (tiling.threads == 0) return tiling.blocks_per_sm;
  return std::max(tiling.blocks_per_sm,
                  blocks_per_sm(arch, tiling.registers, tiling.threads, tiling.smem_bytes));
}

TileSchedule tile_schedule(const Problem& problem, TileSource source, const QueryTiling& tiling,
                           int head_group_mb, bool heavy_last) {
  const int block_m = tiling.block_m, pack_gqa = tiling.pack_gqa;
  TileSchedule work{.source = source};
  if (!work.listed()) {
    work.order = tile_order(problem, block_m, pack_gqa, head_group_mb, heavy_last);
    work.tiles = work.order.m_blocks;
    return work;
  }
  // The heads of all tokens as one sequence are what is grouped.
  Problem as_one = problem;
  as_one.lengths = Lengths::kFixed;
  as_one.batch = 1;
  as_one.seqlen_q = total_tokens(problem).q;
  as_one.seqlen_kv = total_tokens(problem).kv;
  work.order = tile_order(as_one, block_m, pack_gqa, head_group_mb, false);
  work.tiles = query_tiles_of_head(problem, block_m, pack_gqa);
  const std::int64_t group_bytes = std::int64_t{head_group_mb} << 20;
  if (head_group_mb > 0 && work.order.heads_per_group == 1 &&
      as_one.seqlen_kv * key_bytes(problem) > group_bytes)
    work.keys_per_group = std::max<std::int64_t>(1, group_bytes / key_bytes(problem));
  return work;
}

}  // namespace attnforge
