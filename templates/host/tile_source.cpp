#include "templates/host/tile_source.h"

#include <algorithm>

#include "generator/problem/bucket.h"
#include "templates/host/fwd_params.h"
#include "templates/host/split_counts.h"
#include "templates/host/tile_order.h"

namespace attnforge {

std::int64_t query_tiles_of_head(const Problem& problem, int block_m, int pack_gqa) {
  const std::int64_t padded = problem.batch *
                              ((problem.seqlen_q * pack_gqa + block_m - 1) / block_m);
  if (problem.lengths != Lengths::kPacked) return padded;
  // The last tile of each sequence may have a single row.
  return std::min(padded, total_tokens(problem).q * pack_gqa / block_m + problem.batch);
}

TileSource tile_source(const Problem& problem, bool key_lists, const QueryTiling& tiling) {
  constexpr std::int64_t kMostKeys = 1 << 30;  // of all: key tiles are counted in 32 bits
  constexpr std::int64_t kSms = 128;           // of a large GPU
  if (key_lists && tiling.own_list_groups == 0) return TileSource::kList;
  if (problem.lengths == Lengths::kFixed) return TileSource::kSizes;
  const std::int64_t rows = bucket_seqlen(problem.seqlen_q) * tiling.pack_gqa,
                     tiles_of_sequence = (rows + tiling.block_m - 1) / tiling.block_m;
  // Nothing of the batch may decide anything.
  if (problem.batch_invariant)
    return tiles_of_sequence <= 1 ? TileSource::kBound : TileSource::kList;
  const std::int64_t batch = bucket_batch(problem.batch);
  if (tiling.num_splits > 1 && tiles_of_sequence <= 1 && problem.lengths == Lengths::kUsed &&
      batch <= kMostSequencesOfSplits && batch * bucket_seqlen(problem.seqlen_kv) <= kMostKeys)
    return TileSource::kLengths;
  const std::int64_t tiles = batch * (problem.num_heads_q / tiling.pack_gqa) * tiles_of_sequence;
  return tiles <= kSms * tiling.blocks_per_sm ? TileSource::kBound : TileSource::kList;
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
