// fwd_wgmma_sm90a_pages_test.cpp - the warps that load keys from pages, on the host, beside a
// consumer that gives buffers back as soon as it may: at every pace each tile comes, and all end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "parts/pages/params.h"
#include "parts/lengths/params.h"
#include "fwd_wgmma_sm90a/producer.cuh"
#include "parts/pages/tma_keys.cuh"
#include "pieces/range_walk.cuh"
#include "parts/lengths/used_lengths.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kPageSize = 16, kTileKeys = 64, kKeys = 5 * kTileKeys - 20, kColumns = 64;
constexpr int kPages = (kKeys + kPageSize - 1) / kPageSize;

constexpr FwdWgmmaSm90aConfig config() {
  FwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = kBf16;
  c.head_dim = c.head_dim_v = kColumns;
  c.alignment = 16;
  c.lengths = kUsedLengths;
  c.page_size = kPageSize;
  c.warpgroups = 1;
  c.block_n = kTileKeys;
  c.k_stages = c.v_stages = 2;
  c.q_in_regs = c.q_stages = 1;
  c.grid = kGridPlain;
  c.blocks_per_sm = c.pack_gqa = 1;
  c.swizzle = 128;
  return c;
}
constexpr FwdWgmmaSm90aConfig kConfig = config();

using Params = WithPages<WithLengths<FwdWgmmaSm90aParams>>;

/// One query tile.
struct OneTile {
  static constexpr bool kMayBeEmpty = false;
  static void begin() {}
  static TilePlace place(const Params&, int) { return {}; }
  static int tiles(const Params&) { return 1; }
};
struct Pieces {
  using Order = OneTile;
  using Lengths = UsedLengths;
  using Walk = RangeWalk<false>;
  using Keys = PagedTmaKeys<kConfig>;
};
using Producer = FwdWgmmaSm90aProducer<kConfig, Pieces, Params>;
using Shared = FwdWgmmaSm90aShared<kConfig>;
using Work = Producer::Work;
static_assert(Producer::kThreads == 128, "four warps load a tile that lies in four pages");

TensorMap map_of(const std::vector<u16>& data, int box_rows, int rows) {
  const test::HostMap host{data.data(), kColumns, 0, rows * kColumns, kColumns, rows, 1, box_rows};
  TensorMap map{};
  std::memcpy(&map, &host, sizeof(host));
  return map;
}

/// Lane 0 of a consumer warp. Adds the number in each row of K to `seen`.
void consume(const Shared& smem, bool counts, std::vector<int>& seen) {
  Ring<kConfig.k_stages> k, v;
  mbarrier_wait(smem.q_full(0), 0);
  ATTNFORGE_ASSERT(load_shared(smem.tile(0)) == 0, "the tile that was told");
  mbarrier_arrive(smem.q_empty(0));  // Q is in registers
  for (int tile = (kKeys + kTileKeys - 1) / kTileKeys - 1; tile >= 0; --tile) {
    mbarrier_wait(smem.k_full(k.stage), k.parity);
    for (int row = 0; row < kTileKeys && counts; ++row) {
      const u32 at = test::swizzled(smem.k(k.stage) + static_cast<u32>(row) * 128);
      seen.push_back(test::own_sm().load<u16>(at));
    }
    mbarrier_arrive(smem.k_empty(k.stage));
    k.advance();
    mbarrier_wait(smem.v_full(v.stage), v.parity);
    mbarrier_arrive(smem.v_empty(v.stage));
    v.advance();
  }
  mbarrier_wait(smem.q_full(0), 1);
  ATTNFORGE_ASSERT(load_shared(smem.tile(0)) == Work::kNoTile, "the end that was told");
}

TEST(PagesOnTheHost, ComeAtEveryPaceOfTheWarpsThatLoadThem) {
  // Row r of the sequence, from 1 on, lies where a shuffled table says.
  std::vector<int> table(kPages);
  std::vector<u16> pool(std::size_t{kPages} * kPageSize * kColumns), queries(64 * kColumns);
  for (int i = 0; i < kPages; ++i) {
    table[i] = i * 7 % kPages;
    for (int r = 0; r < kPageSize; ++r)
      pool[static_cast<std::size_t>((table[i] * kPageSize + r) * kColumns)] = static_cast<u16>(
          i * kPageSize + r + 1);
  }
  const int length_kv = kKeys;
  Params params{};
  params.fwd.batch = params.fwd.num_heads_q = params.fwd.num_heads_kv = params.fwd.seqlen_q = 1;
  params.fwd.seqlen_kv = kKeys;
  params.fwd.window_left = params.fwd.window_right = -1;
  params.q = map_of(queries, 64, 64);
  params.k = params.v = map_of(pool, kPageSize, kPageSize);
  params.lengths.kv = &length_kv;
  params.pages.table = table.data();
  params.pages.num_pages = kPages;
  std::vector<int> wanted;
  for (int tile = kKeys / kTileKeys; tile >= 0; --tile)
    for (int row = tile * kTileKeys; row < (tile + 1) * kTileKeys; ++row)
      wanted.push_back(row < kKeys / kPageSize * kPageSize + kPageSize ? row + 1 : 0);
  for (const bool late : {false, true})
    for (unsigned slow = 4; slow <= 8; ++slow) {
      std::vector<int> seen;
      test::Machine machine;
      machine.late = late;
      machine.slow_warp = slow;
      const std::string failure = test::run_together(machine, 1, 256, kConfig.smem_bytes(), [&] {
        const Shared smem{0};
        if (threadIdx.x == 0) smem.init_barriers();
        test::wait_at(*test::own_block);
        if (threadIdx.x >= 128)
          Producer(params, smem).run();
        else if (threadIdx.x % 32 == 0)
          consume(smem, threadIdx.x == 0, seen);
      });
      EXPECT_EQ(failure, "") << "slow warp " << slow << (late ? ", late" : "");
      EXPECT_EQ(seen, wanted) << "slow warp " << slow << (late ? ", late" : "");
    }
}

}  // namespace
}  // namespace attnforge
