// split_merge_test.cpp - the last block of a query tile, and the blocks of a cluster, merge its
// parts, on threads of the host: the bits of the step that would merge them, whoever is last, and
// counters as they were before.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
// What is assembly elsewhere.
#define shuffle_xor shuffle_xor_of_device
#include "templates/ptx/shuffle.cuh"
#undef shuffle_xor
#define exp2_approx exp2_approx_of_device
#define log2_approx log2_approx_of_device
#include "templates/ptx/special.cuh"
#undef exp2_approx
#undef log2_approx
#define arrive arrive_of_device
#define arrive_and_share arrive_and_share_of_device
#include "templates/ptx/arrive.cuh"
#undef arrive
#undef arrive_and_share
#define thread_index thread_index_of_device
#include "templates/ptx/special_registers.cuh"
#undef thread_index
#define cluster_rank cluster_rank_of_device
#define cluster_blocks cluster_blocks_of_device
#define in_block in_block_of_device
#define store_in_cluster store_in_cluster_of_device
#include "templates/ptx/cluster.cuh"
#undef cluster_rank
#undef cluster_blocks
#undef in_block
#undef store_in_cluster
namespace attnforge {
inline int thread_index() { return int(threadIdx.x); }
// A cluster is one tile's blocks, one after another: its memory is kept for each.
constexpr u32 kBlockBytes = 1 << 16;
inline std::vector<u8> cluster_memory;
inline int cluster_rank() { return int(blockIdx.y); }
inline int cluster_blocks() { return int(gridDim.y); }
inline u32 in_block(u32 address, int rank) { return address + u32(rank) * kBlockBytes; }
inline void store_in_cluster(u32 address, float x) {
  std::memcpy(&cluster_memory.at(address), &x, sizeof(x));
}
inline void store_in_cluster(u32 address, float x, float y) {
  store_in_cluster(address, x);
  store_in_cluster(address + 4, y);
}
template <int kMask>
float shuffle_xor(float x) { return __shfl_xor_sync(~0u, x, kMask); }
inline float exp2_approx(float x) { return std::exp2(x); }
inline float log2_approx(float x) { return std::log2(x); }
inline u32 arrive(u32* counter, u32 last) {
  const u32 before = *counter;  // blocks run one after another
  *counter = before >= last ? 0 : before + 1;
  return before;
}
inline u32 arrive_and_share(u32* counter, u32 last) { return arrive(counter, last); }
}  // namespace attnforge
// Dynamic shared memory is one array.
#undef __shared__
#define __shared__
#include "templates/pieces/cluster_output.cuh"
#include "templates/pieces/fixed_lengths.cuh"
#include "templates/pieces/last_block_output.cuh"
#include "templates/tile/query_tile.cuh"
// clang-format on

namespace attnforge {

alignas(128) u8 shared_memory[1 << 16];

namespace {

constexpr int kBatch = 2, kHeads = 8, kPack = 4, kTiles = kBatch * kHeads / kPack;

struct HostConfig {
  int head_dim_v;
  int block_m = 32, dtype_o = kFp32, alignment = 16, sinks = 0, lse = 1;
  constexpr int num_threads() const { return 64; }
  constexpr int smem_bytes() const { return 48; }  // of tiles, before what a cluster needs
};

/// Of the host's grid, whose tiles are x and whose splits are y.
struct HostSplits : EvenSplits {
  static int index() { return static_cast<int>(test::block_index.y); }
};

using Params = WithMergeCounters<WithPartials<FwdTiledParams>>;
using ClusterParams = WithClusterShare<WithPartials<FwdTiledParams>>;

struct World {
  int splits, columns, queries;
  std::vector<float> part_o, part_lse, o, lse;
  MergeCounters counters{};

  World(int its_splits, int its_columns, int its_queries = 1)
      : splits(its_splits), columns(its_columns), queries(its_queries) {
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    std::mt19937 random(5);
    std::uniform_real_distribution<float> uniform(-3, 3);
    const auto rows = static_cast<std::size_t>(all_rows());
    o.assign(rows * static_cast<std::size_t>(columns), -777);
    lse.assign(rows, -777);
    for (std::size_t part = 0; part < rows * static_cast<std::size_t>(splits); ++part) {
      // The first row has no keys at all, and others not in each part: their o is never read.
      const bool empty = part < static_cast<std::size_t>(splits) || part % 7 == 3;
      part_lse.push_back(empty ? negative_infinity() : uniform(random));
      for (int c = 0; c < columns; ++c) part_o.push_back(empty ? kNan : uniform(random));
    }
  }

  int all_rows() const { return kBatch * kHeads * queries; }

  Params params() {
    Params p = argument<Params>();
    p.counters = &counters;
    return p;
  }

  /// o and lse are [batch, heads, queries].
  template <class Argument>
  Argument argument() {
    Argument p{};
    p.fwd.batch = kBatch;
    p.fwd.num_heads_q = kHeads;
    p.fwd.num_heads_kv = kHeads / kPack;
    p.fwd.seqlen_q = queries;
    p.fwd.o = {o.data(), i64{kHeads} * queries * columns, columns, i64{queries} * columns};
    p.fwd.lse = lse.data();
    p.fwd.lse_stride_batch = i64{kHeads} * queries;
    p.fwd.lse_stride_head = queries;
    p.partials.o = part_o.data();
    p.partials.lse = part_lse.data();
    p.partials.splits = splits;
    p.partials.rows_of_head = queries;
    return p;
  }
};

/// What the step makes of the parts.
template <int kColumns>
void merge_by_step(World& world) {
  for (int row = 0; row < world.all_rows(); ++row) {
    const auto first = static_cast<std::size_t>(row * world.splits);
    const StridedParts<kFp32> parts{&world.part_o[first * kColumns], &world.part_lse[first],
                                    kColumns, 1, world.splits};
    const int warps = MergeShape::of(world.splits).warps;
    float* const to = &world.o[static_cast<std::size_t>(row) * kColumns];
    test::run_on_host(1, MergeShape::kThreads, [&] {
      MergeRow<kFp32, 16, kColumns>::run(
          parts, int(threadIdx.x) / 32 < warps, warps, [](float&) { return 1.0f; },
          [&](int column, const float(&x)[4]) { std::copy_n(x, 4, to + column); },
          [&](float lse) { world.lse[static_cast<std::size_t>(row)] = lse; });
    });
  }
}

/// `tile_of` and `split_of` say in which order blocks end.
template <int kColumns, class TileOf, class SplitOf>
void merge_by_last_blocks(World& world, const TileOf& tile_of, const SplitOf& split_of) {
  using Output = LastBlockOutput<HostConfig{kColumns}, Params, HostSplits>;
  const Params params = world.params();
  test::run_on_host(static_cast<unsigned>(kTiles * world.splits), 64, [&] {
    const test::Index number = test::block_index;
    test::grid_size = {kTiles, static_cast<unsigned>(world.splits), 1};
    test::block_index = {tile_of(number.x), split_of(number.x), 0};
    const int head = static_cast<int>(test::block_index.x);
    const QueryTile<kPack, FixedLengths> tile(params, TilePlace{0, head}, 32);
    Output::merge(params, tile);
    test::block_index = number;
  });
}

template <int kColumns>
void expect_the_bits_of_the_step(int splits) {
  SCOPED_TRACE(splits);
  World step(splits, kColumns), world(splits, kColumns);
  merge_by_step<kColumns>(step);
  const auto count = static_cast<unsigned>(splits);
  for (unsigned run = 1; run <= 2; ++run) {  // with the counters that the run before left
    std::ranges::fill(world.o, -777.0f);
    if (run == 1)
      merge_by_last_blocks<kColumns>(
          world, [](unsigned i) { return i % kTiles; }, [](unsigned i) { return i / kTiles; });
    else
      merge_by_last_blocks<kColumns>(
          world, [&](unsigned i) { return i / count; },
          [&](unsigned i) { return count - 1 - i % count; });
    EXPECT_EQ(std::memcmp(world.o.data(), step.o.data(), step.o.size() * sizeof(float)), 0);
    EXPECT_EQ(world.lse, step.lse);
    MergeCounters expected{};
    expected.runs = run;
    EXPECT_EQ(std::memcmp(&world.counters, &expected, sizeof(expected)), 0) << "zeros but for runs";
  }
}

/// Rows of a tile as its warps have them: eight rows of four lanes each, and eight more.
template <int kColumns, class Output, class Tile>
void store_parts(const World& world, const Tile& tile) {
  const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
  float o[kColumns / 8][4], lse[2];
  const int first = warp * 16 + lane / 4;
  for (int half = 0; half < 2; ++half) {
    const int row = first + 8 * half, query = row / kPack;
    lse[half] = -5;
    for (auto& fragment : o) fragment[2 * half] = fragment[2 * half + 1] = -5;
    if (query >= world.queries) continue;
    const int head = tile.head * kPack + row % kPack;
    const auto part = static_cast<std::size_t>(
        ((tile.batch * kHeads + head) * world.queries + query) * world.splits + cluster_rank());
    lse[half] = world.part_lse[part];
    for (int j = 0; j < kColumns / 8; ++j)
      for (int c = 0; c < 2; ++c)
        o[j][2 * half + c] = world.part_o[part * kColumns +
                                          static_cast<std::size_t>(j * 8 + lane % 4 * 2 + c)];
  }
  Output::template store<0, kColumns / 8>(tile, first, 0, o, 1.0f, lse[0]);
  Output::template store<1, kColumns / 8>(tile, first + 8, 0, o, 1.0f, lse[1]);
}

template <int kColumns>
void expect_a_cluster_to_make_them(int splits, int queries) {
  SCOPED_TRACE(testing::Message() << splits << " blocks, " << queries << " queries");
  using Output = ClusterOutput<HostConfig{kColumns}, ClusterParams, false>;
  World step(splits, kColumns, queries), world(splits, kColumns, queries);
  merge_by_step<kColumns>(step);
  ClusterParams params = world.argument<ClusterParams>();
  const int rows = std::min(queries * kPack, 32);
  const int share = ceil_div(rows * ClusterShare<kColumns>::kPitch, splits);
  while (1 << params.share_log2 < share) ++params.share_log2;
  const auto blocks = static_cast<unsigned>(splits);
  const auto as_block = [&](unsigned tile_number, unsigned rank, const auto& kernel) {
    test::grid_size = {kTiles, blocks, 1};
    const test::Index number = test::block_index;
    test::block_index = {tile_number, rank, 0};
    kernel(QueryTile<kPack, FixedLengths>(params, TilePlace{0, int(tile_number)}, 32));
    test::block_index = number;
  };
  for (unsigned tile_number = 0; tile_number < kTiles; ++tile_number) {
    cluster_memory.assign(blocks * kBlockBytes, 0xff);  // NaN
    for (unsigned rank = 0; rank < blocks; ++rank)
      test::run_on_host(1, 64, [&] {
        as_block(tile_number, rank,
                 [&](const auto& tile) { store_parts<kColumns, Output>(world, tile); });
      });
    for (unsigned rank = 0; rank < blocks; ++rank) {
      std::memcpy(shared_memory, &cluster_memory[rank * kBlockBytes], kBlockBytes);
      test::run_on_host(1, 64, [&] {
        as_block(tile_number, rank, [&](const auto& tile) { Output::merge(params, tile); });
      });
    }
  }
  EXPECT_EQ(std::memcmp(world.o.data(), step.o.data(), step.o.size() * sizeof(float)), 0);
  EXPECT_EQ(world.lse, step.lse);
}

TEST(Cluster, MakesTheBitsOfTheStep) {
  expect_a_cluster_to_make_them<128>(16, 1);  // a quarter of a row each
  expect_a_cluster_to_make_them<128>(3, 5);   // several rows
  expect_a_cluster_to_make_them<72>(6, 2);    // rows of 18 quads, and blocks without any
}

TEST(LastBlock, MakesTheBitsOfTheStepAndLeavesCountersAsTheyWere) {
  expect_the_bits_of_the_step<72>(3);
  expect_the_bits_of_the_step<128>(12);
  expect_the_bits_of_the_step<256>(7);
  expect_the_bits_of_the_step<128>(75);
}

TEST(LastBlock, CountsTilesWithoutRowsToo) {
  using Output = LastBlockOutput<HostConfig{128}, Params, HostSplits>;
  World world(2, 128);
  const Params params = world.params();
  for (unsigned split = 0; split < 2; ++split)
    test::run_on_host(3, 64, [&] {
      test::block_index.y = split;
      Output::leave(params);
      test::block_index.y = 0;
    });
  EXPECT_EQ(world.counters.tiles, 0u);
  EXPECT_EQ(world.counters.runs, 1u);
}

}  // namespace
}  // namespace attnforge
