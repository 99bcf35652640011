// paged_keys_test.cpp - where kernels look for keys in pages, on threads of the host: the address
// of every row that cp.async copies, and every box that TMA loads, beside the table.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
// What is assembly on the GPU.
#include "ptx/special_registers.cuh"
#define tma_load_4d tma_load_4d_on_gpu
#define elected elected_on_gpu
#include "templates/ptx/elect.cuh"
#include "templates/ptx/tma.cuh"
#undef tma_load_4d
#undef elected
// clang-format on

namespace attnforge {

inline bool elected() { return thread_index() % 32 == 5; }

/// Of one load by TMA.
struct Copy {
  u32 to;
  int column, row, head, page;
};
inline std::mutex copies_mutex;
inline std::vector<Copy> copies;

inline void tma_load_4d(u32 to, const TensorMap&, u32, u64, int column, int row, int head,
                        int page) {
  const std::lock_guard lock(copies_mutex);
  copies.push_back({to, column, row, head, page});
}

}  // namespace attnforge

// clang-format off
#include "templates/parts/pages/keys.cuh"
#include "templates/parts/pages/tma_keys.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kKeys = 299, kHead = 3, kByte = 32, kElementBytes = 2, kSequence = 1;

struct Argument {
  FwdParams fwd;
  PagesParams pages;
};
/// As tile/query_tile.cuh has it.
struct Tile {
  const Argument& params;
  int batch;
  struct {
    int keys;
    int kv() const { return keys; }
  } lengths;
  int kv_head() const { return kHead; }
};

/// Two sequences in a pool; entries after the second one's last key are no pages.
struct World {
  int page_size, columns;
  std::vector<int> table;
  Argument argument{};
  Tile tile{argument, kSequence, {kKeys}};

  explicit World(int rows_of_page)
      : page_size(rows_of_page), columns((kKeys + rows_of_page - 1) / rows_of_page) {
    table.assign(static_cast<std::size_t>(2 * columns + 40), 0x7fffffff);
    for (int i = 0; i < columns; ++i)
      table[static_cast<std::size_t>(columns + i)] = (i * 7 + 5) % 101;
    argument.fwd.k = {reinterpret_cast<void*>(0x100000000), 70000 * page_size, 520, 128};
    argument.pages = {table.data(), columns, 101, {}};
  }
  World(const World&) = delete;

  int page_of(int key) const { return table[static_cast<std::size_t>(columns + key / page_size)]; }
  u64 address_of(int key) const {
    const TensorRef& k = argument.fwd.k;
    const i64 at = page_of(key) * k.stride_batch + key % page_size * k.stride_row +
                   kHead * k.stride_head;
    return reinterpret_cast<u64>(k.data) + static_cast<u64>(at * kElementBytes + kByte);
  }
};

/// How many rows of tiles of kTileKeys, of which a thread has every kApart-th, are not looked for
/// where they are.
template <int kPageSize, int kTileKeys, int kApart>
int wrong_rows() {
  World world(kPageSize);
  std::atomic<int> wrong = 0;
  test::run_on_host(1, 32, [&] {
    constexpr int kLast = kKeys / kTileKeys, kLanesPerRow = 8;
    const PagedKeys<kBf16, kPageSize> unplaced(world.argument.fwd.k, world.tile, kHead, kByte);
    auto keys = unplaced, its_v = unplaced;
    for (int step = 0; step <= kLast + 1; ++step) {
      // A walk over all tiles, and one from nowhere.
      const bool walks = step <= kLast;
      const int n = walks ? kLast - step : kLast / 2;
      if (!walks)
        keys.template visit<kTileKeys>(n);
      else if (step == 0)
        keys.template begin<kTileKeys>(n);
      else
        keys.template advance<kTileKeys>(n);
      its_v.share(keys);
      // The warps of a block, one after another.
      for (int first = 0; first < kApart; first += 32 / kLanesPerRow) {
        const int row = first + thread_index() / kLanesPerRow;
        auto placed = its_v;
        placed.template start<kTileKeys, kApart>(row);
        const auto rows = placed.template rows<kTileKeys, kApart>(n, row);
        for (int i = 0; i * kApart < kTileKeys; ++i) {
          if (row + i * kApart >= kTileKeys) break;  // the same for all rows of a warp
          const u64 at = reinterpret_cast<u64>(rows(i));
          const int key = n * kTileKeys + row + i * kApart;
          if (key < kKeys && at != world.address_of(key)) ++wrong;
        }
      }
    }
    keys.template begin<kTileKeys>(-1);  // where no tile is: nothing to read
  });
  return wrong;
}

template <int kPageSize, int kTileKeys>
void expect_rows() {
  EXPECT_EQ((wrong_rows<kPageSize, kTileKeys, 8>()), 0) << kPageSize << " " << kTileKeys;
  EXPECT_EQ((wrong_rows<kPageSize, kTileKeys, 16>()), 0) << kPageSize << " " << kTileKeys;
  EXPECT_EQ((wrong_rows<kPageSize, kTileKeys, 32>()), 0) << kPageSize << " " << kTileKeys;
}
template <int kPageSize>
void expect_rows_of_pages() {
  expect_rows<kPageSize, 16>();
  expect_rows<kPageSize, 48>();
  expect_rows<kPageSize, 64>();
}

TEST(PagedKeys, LookForEveryRowInItsPage) {
  expect_rows<1, 16>();
  expect_rows<1, 32>();  // a page for each lane
  expect_rows_of_pages<2>();
  expect_rows_of_pages<4>();
  expect_rows_of_pages<8>();
  expect_rows_of_pages<16>();
  expect_rows_of_pages<24>();
  expect_rows_of_pages<64>();
  expect_rows_of_pages<256>();
}

TEST(PagedKeys, TakeSomePageForAHoleAndForANumberOfNoPage) {
  World world(16);
  for (const int entry : {-1, -1000, 101, 0x7fffffff}) {
    for (int i = 0; i < 3; ++i) world.table[static_cast<std::size_t>(world.columns + i)] = entry;
    std::atomic<int> wrong = 0;
    test::run_on_host(1, 32, [&] {
      PagedKeys<kBf16, 16> keys(world.argument.fwd.k, world.tile, kHead, kByte);
      keys.visit<64>(0);
      if (keys.page >= 101) ++wrong;
      keys.visit<64>(kKeys / 64);  // lanes after the last key, or of no chunk, ask nothing
      const bool present = thread_index() < 4 && kKeys / 64 * 64 + thread_index() * 16 < kKeys;
      if (!present && keys.page != 0) ++wrong;
    });
    EXPECT_EQ(wrong, 0) << entry;
  }
}

struct TmaConfig {
  int block_n, page_size, most_warps = 1, swizzle = 128;
  constexpr int loading_warps(int boxes) const { return std::min(most_warps, boxes); }
  constexpr int box_keys(int tile_keys) const { return gcd(page_size, tile_keys); }
  constexpr int kv_chunk_bytes() const { return block_n * swizzle; }
  constexpr int chunk_columns() const { return swizzle / 2; }
};

/// The last keys come first, as in RangeWalk.
struct Walk {
  static constexpr bool kListed = false;
  int tiles;
  int count() const { return tiles; }
  int tile(int i) const { return tiles - 1 - i; }
};

template <TmaConfig C>
void expect_boxes() {
  SCOPED_TRACE(std::to_string(C.page_size) + " " + std::to_string(C.block_n));
  constexpr int kChunks = 2, kBox = C.box_keys(C.block_n);
  World world(C.page_size);
  const Walk walk{(kKeys + C.block_n - 1) / C.block_n};
  for (int i = 0; i < walk.tiles; ++i) {
    copies.clear();
    std::atomic<int> after = 0;
    using Keys = PagedTmaKeys<C>;
    test::run_on_host(1, Keys::kThreads, [&] {
      const Keys keys(world.tile);
      const auto box = keys.of_tile(walk, i);
      if (keys.of_tile(walk, walk.tiles).page != -1) ++after;
      keys.template load<kChunks>(TensorMap{}, 1000, 0, box);
    });
    EXPECT_EQ(after, 0) << "of a tile that is not there";
    ASSERT_EQ(copies.size(), static_cast<std::size_t>(kChunks * C.block_n / kBox));
    std::set<u32> places;
    for (const Copy& copy : copies) places.insert(copy.to);
    EXPECT_EQ(places.size(), copies.size()) << "a box was loaded twice";
    for (const Copy& copy : copies) {
      const int chunk = (static_cast<int>(copy.to) - 1000) / C.kv_chunk_bytes();
      const int in_tile = (static_cast<int>(copy.to) - 1000) % C.kv_chunk_bytes() / C.swizzle;
      const int key = walk.tile(i) * C.block_n + in_tile;
      EXPECT_EQ(in_tile % kBox, 0);
      EXPECT_EQ(copy.column, chunk * C.chunk_columns());
      EXPECT_EQ(copy.head, kHead);
      EXPECT_EQ(copy.row, key % C.page_size);
      EXPECT_EQ(copy.page, key < kKeys ? world.page_of(key) : -1) << "key " << key;
    }
  }
}

TEST(PagedTmaKeys, LoadEveryBoxFromItsPage) {
  expect_boxes<TmaConfig{128, 16}>();
  expect_boxes<TmaConfig{176, 64}>();
  expect_boxes<TmaConfig{64, 256}>();
  expect_boxes<TmaConfig{160, 24}>();
  expect_boxes<TmaConfig{256, 8}>();
  expect_boxes<TmaConfig{64, 64}>();
}

TEST(PagedTmaKeys, WarpsShareBoxesEvenWhereTheirNumberDoesNotDivide) {
  expect_boxes<TmaConfig{128, 16, 4}>();
  expect_boxes<TmaConfig{96, 16, 4}>();
  expect_boxes<TmaConfig{112, 16, 4}>();
  expect_boxes<TmaConfig{48, 16, 4}>();
  expect_boxes<TmaConfig{64, 64, 4}>();
}

}  // namespace
}  // namespace attnforge
