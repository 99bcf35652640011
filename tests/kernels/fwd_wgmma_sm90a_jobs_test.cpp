// fwd_wgmma_sm90a_jobs_test.cpp - the whole kernel on the host, with workers: a job on tiles of K
// and V that undoes what was done to the inputs, or loads of tiles of an array that scores read by
// rows. At every pace outputs are those of the kernel without them, with each kind of query tiles,
// walks and loads.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "reference/half.h"

#include "tests/kernels/index_of.h"

// clang-format off
#include "tests/kernels/machine.h"
#include "base.cuh"
#include "parts/key_lists/params.h"
#include "parts/lengths/params.h"
#include "parts/pages/params.h"
#include "fwd_wgmma_sm90a/kernel.cuh"
#include "fwd_wgmma_sm90a/gathered_tiles.cuh"
#include "hopper/dense_pieces.cuh"
#include "tests/kernels/fwd_wgmma_config.h"
#include "hopper/workers.cuh"
#include "parts/key_lists/mask.cuh"
#include "parts/key_lists/tma_keys.cuh"
#include "parts/key_lists/walk.cuh"
#include "parts/lengths/bound_order.cuh"
#include "parts/lengths/packed_lengths.cuh"
#include "parts/lengths/queue_order.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "parts/pages/tma_keys.cuh"
#include "parts/user_code/lists.cuh"
#include "parts/user_code/params.h"
#include "parts/user_code/row_ring.cuh"
#include "tile/swizzle.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kColumns = 64, kTileKeys = 64, kPageSize = 16, kHeadsQ = 2, kHeadsKv = 1;

// ---- Kernels ----

constexpr FwdWgmmaSm90aConfig config_of(int warpgroups, int grid) {
  return test::usual_config(kBf16, kColumns, kTileKeys, warpgroups, grid);
}
constexpr FwdWgmmaSm90aConfig with_turns(FwdWgmmaSm90aConfig c) {
  c.pingpong = 1;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_window(FwdWgmmaSm90aConfig c) {
  c.left_bound = c.right_bound = 1;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_lengths(FwdWgmmaSm90aConfig c, int lengths) {
  c.lengths = lengths;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_pages(FwdWgmmaSm90aConfig c) {
  c.page_size = kPageSize;
  return with_lengths(c, kUsedLengths);
}
/// Lists of groups of keys.
constexpr FwdWgmmaSm90aConfig with_lists(FwdWgmmaSm90aConfig c, int group_keys) {
  c.mask_block_q = 64, c.mask_block_kv = group_keys;
  return c;
}
/// Lists of key tiles.
constexpr FwdWgmmaSm90aConfig with_text(FwdWgmmaSm90aConfig c) {
  c.user_mask = 1;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_jobs(FwdWgmmaSm90aConfig c) {
  c.dtype_k = c.dtype_v = kFp16;
  return c;
}

bool is_negated(int key, int kv_head, int sequence) { return (key + kv_head + sequence) % 2 != 0; }

template <class Tile, FwdWgmmaSm90aConfig C>
struct NegatedRows {
  const Tile tile;
  const int warp, warps;

  NegatedRows(const Tile& of_keys, int number, int count)
      : tile(of_keys), warp(number), warps(count) {}
  void run(u32 from, u32 to) const {
    for (int i = 0; i < 2; ++i) test::dawdle();
    for (int row = warp; row < C.block_n; row += warps) {
      const bool negated = is_negated(tile.key(row), tile.queries.kv_head(), tile.queries.batch);
      if (const int i = static_cast<int>(threadIdx.x) % 32; i < C.swizzle / 16) {
        const u32 at = TmaRows<C.swizzle, C.kv_chunk_bytes()>::offset(row, i);
        u32 words[4];
        load_shared_16(words, from + at);
        for (u32& word : words) word ^= negated ? 0x80008000u : 0u;
        store_shared_16(to + at, words);
      }
    }
  }
};

using Params = WithCode<WithPages<WithKeyLists<WithLengths<FwdWgmmaSm90aParams>>>, 2>;

template <FwdWgmmaSm90aConfig C>
struct Dense : DenseTmaPieces<C> {
  template <class Tile>
  using KJob = NegatedRows<Tile, C>;
  template <class Tile>
  using VJob = NegatedRows<Tile, C>;
};
template <FwdWgmmaSm90aConfig C>
struct OfUsedLengths : Dense<C> {
  using Lengths = UsedLengths;
  using Order = BoundOrder;
};
template <FwdWgmmaSm90aConfig C>
struct OfPackedLengths : Dense<C> {
  using Lengths = PackedLengths;
  using Order = QueueOrder;
};
template <FwdWgmmaSm90aConfig C>
struct OfPages : Dense<C> {
  using Lengths = UsedLengths;
  using Keys = PagedTmaKeys<C>;
  using Order = std::conditional_t<C.grid == kGridPlain, BoundOrder, QueueOrder>;
};
template <FwdWgmmaSm90aConfig C>
struct OfLists : Dense<C> {
  using Walk = ListWalk<C.key_groups()>;
  using Mask = ListMask<typename DenseTmaPieces<C>::Mask, NoRule>;
  using Keys = GroupedTmaKeys<C>;
  using Order = QueueOrder;
};
template <FwdWgmmaSm90aConfig C>
struct OfListsInParts : OfLists<C> {
  using Walk = PartedListWalk<C.warpgroups>;
};
/// The same under bits of pairs: as any rule is asked, and bits that come with the keys.
template <FwdWgmmaSm90aConfig C>
using BitsOfText = TextBits<C.block_m(), C.block_n>;
template <FwdWgmmaSm90aConfig C>
struct OfBits : OfListsInParts<C> {
  using Mask = ListMask<typename DenseTmaPieces<C>::Mask, BitsOfText<C>>;
};
template <FwdWgmmaSm90aConfig C>
struct OfListsAndPages : OfLists<C> {
  using Lengths = UsedLengths;
  using Keys = PagedTmaKeys<C>;
};

// ---- Scores that read an array by rows ----

constexpr FwdWgmmaSm90aConfig with_rows(FwdWgmmaSm90aConfig c, int bytes) {
  c.row_bytes = bytes;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_keys(FwdWgmmaSm90aConfig c, int block_n) {
  c.block_n = block_n;
  return c;
}

constexpr int kRowPitch = 304, kMostRows = 256;

/// score="s + bias[((batch * heads + head) * most_rows + q) * pitch + k]".
template <class T>
struct BiasCode {
  using Words = CodeParams<2>;
  using RowElement = T;
  static constexpr bool kScoreReadsByKey = true, kMaskReadsByKey = false, kTanh = false;

  template <class Tanh, class S, class Reads = FromMemory>
  static auto score(const Words& words, const Tanh&, S s, int batch, int head, int q, KeyPosition k,
                    int, int, const Reads& reads = {}) {
    const AlignedArray<T, Reads> bias(words.words[0], reads);
    return s + bias[((batch * kHeadsQ + head) * kMostRows + q) * kRowPitch + k];
  }
};
template <FwdWgmmaSm90aConfig C, class T>
using BiasScore = std::conditional_t<
    C.row_bytes != 0, RingScore<C, BiasCode<T>, UserScore<BiasCode<T>>>, UserScore<BiasCode<T>>>;
template <template <FwdWgmmaSm90aConfig> class Pieces, class T>
struct Biased {
  template <FwdWgmmaSm90aConfig C>
  struct Of : Pieces<C> {
    using Score = BiasScore<C, T>;
  };
};

/// Numbers of an array for so many sequences, some of them -inf.
template <class T>
std::vector<T> bias_of(int sequences) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  std::vector<T> bias(static_cast<std::size_t>(sequences * kHeadsQ * kMostRows * kRowPitch));
  for (T& x : bias) {
    const float number = random() % 9 == 0 ? -INFINITY : normal(random);
    if constexpr (sizeof(T) == 2)
      x = {static_cast<u16>(float_to_bf16(number))};
    else
      x = number;
  }
  return bias;
}

// ---- A problem ----

/// Rows of each sequence; two heads of Q share one of K and V. Tensors are packed, padded, or keys
/// lie in pages.
struct World {
  std::vector<int> rows_q, rows_kv;
  std::vector<u16> q, k, v, o;
  std::vector<float> lse;
  std::vector<int> table, begins_q, begins_kv;
  std::vector<std::byte> queue;
  std::vector<KeyGroup> groups;
  std::vector<int> counts;
  std::vector<u32> parts, bits;
  TileCounters counters{};
  Params params{};

  TensorMap map_of(const std::vector<u16>& data, int heads, int rows, int box_rows) const {
    const test::HostMap host{
        data.data(), heads * kColumns, kColumns, rows * heads * kColumns, kColumns, rows,
        heads,       box_rows};
    TensorMap map{};
    std::memcpy(&map, &host, sizeof(host));
    return map;
  }
};

/// Rows of q, k and v of the sequences; those of some keys negated.
template <FwdWgmmaSm90aConfig C>
void fill_rows(World& w, int most_q, int most_kv, bool negates) {
  constexpr bool kPacked = C.lengths == kPackedLengths, kPages = C.page_size != 0;
  const int sequences = static_cast<int>(w.rows_q.size()), pages = ceil_div(most_kv, kPageSize);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const auto fill = [&](u16* row, bool negated) {
    for (int c = 0; c < kColumns; ++c)
      row[c] = static_cast<u16>(float_to_bf16(normal(random)) ^ (negated ? 0x8000 : 0));
  };
  for (int s = 0; s < sequences; ++s) {
    const int first_q = kPacked ? w.begins_q[s] : s * most_q;
    for (int r = 0; r < w.rows_q[s] * kHeadsQ; ++r)
      fill(&w.q[test::index_of((first_q * kHeadsQ + r) * kColumns)], false);
    for (std::vector<u16>* tensor : {&w.k, &w.v})
      for (int key = 0; key < w.rows_kv[s]; ++key) {
        const int row = kPacked ? w.begins_kv[s] + key
                        : kPages
                            ? w.table[s * pages + key / kPageSize] * kPageSize + key % kPageSize
                            : s * most_kv + key;
        fill(&(*tensor)[test::index_of(row * kColumns)], negates && is_negated(key, 0, s));
      }
  }
}

/// The queue of query tiles of a head, as step_queue writes it.
template <FwdWgmmaSm90aConfig C>
void set_queue(World& w) {
  std::vector<QueuedTile> items;
  for (int s = 0; s < static_cast<int>(w.rows_q.size()); ++s)
    for (int m = 0; m * C.block_m() < w.rows_q[s]; ++m) items.push_back({s, m});
  w.queue.resize(sizeof(TileQueue) + items.size() * sizeof(QueuedTile) + 16);
  w.params.lengths.work = reinterpret_cast<TileQueue*>(
      (reinterpret_cast<std::uintptr_t>(w.queue.data()) + 15) / 16 * 16);
  w.params.lengths.work->tiles = static_cast<int>(items.size());
  std::ranges::copy(items, reinterpret_cast<QueuedTile*>(w.params.lengths.work + 1));
}

/// Lists of key groups; some warpgroups see nothing of a tile.
template <FwdWgmmaSm90aConfig C>
void set_lists(World& w, int most_kv, int m_blocks) {
  const int sequences = static_cast<int>(w.rows_kv.size());
  auto& lists = w.params.lists;
  constexpr int kGroups = C.key_groups(), kKeys = C.block_n / kGroups;
  const int all = ceil_div(most_kv, kKeys), capacity = round_up(all, kGroups);
  lists.capacity = capacity;
  lists.m_blocks = m_blocks, lists.heads = kHeadsQ, lists.batch = sequences;
  for (int list = 0; list < sequences * kHeadsQ * m_blocks; ++list) {
    const int s = list / (kHeadsQ * m_blocks), keys = w.rows_kv[s];
    std::vector<KeyGroup> own;
    for (int g = 0; g * kKeys < keys; ++g) {
      const u32 seen = static_cast<u32>(g / kGroups % 3 == 0   ? 0x0f
                                        : g / kGroups % 3 == 1 ? 0xf0
                                                               : 0x5a) |
                       static_cast<u32>(C.warpgroups > 2 && g > 1 && g % 3 != 1 ? 0x900 : 0);
      if ((g + list) % 4 != 0 && list != 1)
        own.push_back(
            {static_cast<u32>(g) | ((g + 1) * kKeys > keys ? KeyGroup::kEdge : 0u), seen});
    }
    while (own.size() % kGroups != 0) own.push_back({static_cast<u32>(all) | KeyGroup::kEdge, 0});
    w.counts.push_back(static_cast<int>(own.size()) / kGroups);
    for (int wg = 0; wg < C.warpgroups; ++wg) {
      int first = -1, last = -1;  // in the order of the walk
      for (int i = 0; i < w.counts.back() * kGroups; ++i) {
        if ((own[own.size() - 1 - static_cast<std::size_t>(i)].rows >> 4 * wg & 15) == 0) continue;
        first = first < 0 ? i / kGroups : first;
        last = i / kGroups;
      }
      const WalkPart part = first < 0 ? WalkPart{0, 0} : WalkPart{first, last - first + 1};
      w.parts.push_back(part.word());
    }
    own.resize(static_cast<std::size_t>(capacity));
    w.groups.insert(w.groups.end(), own.begin(), own.end());
  }
  lists.groups = w.groups.data(), lists.counts = w.counts.data();
  lists.parts = w.parts.data();
}

template <FwdWgmmaSm90aConfig C>
World world_of(const std::vector<int>& rows_q, const std::vector<int>& rows_kv, bool negates) {
  World w;
  w.rows_q = rows_q, w.rows_kv = rows_kv;
  const int sequences = static_cast<int>(rows_q.size());
  const int most_q = *std::ranges::max_element(rows_q),
            most_kv = *std::ranges::max_element(rows_kv);
  constexpr bool kPacked = C.lengths == kPackedLengths, kPages = C.page_size != 0;
  for (int i = 0, q = 0, kv = 0; i <= sequences; ++i) {
    w.begins_q.push_back(q), w.begins_kv.push_back(kv);
    if (i < sequences) q += rows_q[i], kv += rows_kv[i];
  }
  const int stored_q = kPacked ? w.begins_q.back() : most_q;
  const int pages = ceil_div(most_kv, kPageSize);
  const int stored_kv = kPacked ? w.begins_kv.back() : kPages ? kPageSize : most_kv;
  const int tensors = kPacked ? 1 : sequences, kv_tensors = kPages ? sequences * pages : tensors;
  constexpr u16 kNan = 0x7fff;  // what no sequence has
  w.q.assign(test::index_of(tensors * stored_q * kHeadsQ * kColumns), kNan);
  w.k.assign(test::index_of(kv_tensors * stored_kv * kHeadsKv * kColumns), kNan);
  w.v = w.k, w.o = w.q;
  w.lse.assign(test::index_of(tensors * stored_q * kHeadsQ), 0.0f);
  for (int i = 0; i < sequences * pages; ++i) w.table.push_back(i * 7 % (sequences * pages));

  fill_rows<C>(w, most_q, most_kv, negates);

  Params& p = w.params;
  const TensorRef rows{w.o.data(), stored_q * kHeadsQ * kColumns, kHeadsQ * kColumns, kColumns};
  p.fwd.q = p.fwd.o = rows;
  p.fwd.lse = w.lse.data();
  p.fwd.lse_stride_batch = stored_q * kHeadsQ, p.fwd.lse_stride_head = stored_q;
  p.fwd.batch = sequences, p.fwd.num_heads_q = kHeadsQ, p.fwd.num_heads_kv = kHeadsKv;
  p.fwd.seqlen_q = most_q, p.fwd.seqlen_kv = most_kv;
  p.fwd.window_left = C.left_bound ? 70 : kOpenWindow;
  p.fwd.window_right = C.right_bound ? 9 : kOpenWindow;
  p.fwd.softmax_scale = 0.125f;
  const int m_blocks = ceil_div(most_q, C.block_m());
  p.order = {m_blocks, sequences * kHeadsQ, 3, C.right_bound};
  p.tiles = m_blocks * p.order.heads;
  p.counters = &w.counters;
  p.q = w.map_of(w.q, kHeadsQ, stored_q, 64);
  p.k = w.map_of(w.k, kHeadsKv, stored_kv, C.box_keys(C.block_n));
  p.v = w.map_of(w.v, kHeadsKv, stored_kv, C.box_keys(C.block_n));
  p.pages = {w.table.data(), pages, sequences * pages, {}};
  p.lengths.q = kPacked ? w.begins_q.data() : w.rows_q.data();
  p.lengths.kv = kPacked ? w.begins_kv.data() : w.rows_kv.data();

  set_queue<C>(w);
  if constexpr (C.has_key_lists()) p.order.heads = kHeadsQ;
  if constexpr (C.has_tile_queue() && C.grid != kGridPlain) p.order.heads = kHeadsQ;
  if constexpr (C.has_key_lists()) set_lists<C>(w, most_kv, m_blocks);
  return w;
}

template <FwdWgmmaSm90aConfig C, template <FwdWgmmaSm90aConfig> class Pieces>
std::string run(World& w, test::Machine& machine, int blocks) {
  static_assert(C.valid());
  w.params.fwd.o.data = w.o.data();
  std::ranges::fill(w.o, u16{0x7fff});
  std::ranges::fill(w.lse, 1234.0f);
  const std::string failure = test::run_together(
      machine, static_cast<unsigned>(blocks != 0 ? blocks : w.params.tiles), C.num_threads(),
      C.smem_bytes(), [&] { FwdWgmmaSm90a<C, Pieces<C>, Params>::run(w.params); });
  const bool are_back = w.counters.given == 0 && w.counters.ended == 0;
  return failure.empty() && !are_back ? "counters are not put back" : failure;
}

/// blocks: at a time; 0: one a tile.
template <FwdWgmmaSm90aConfig C, template <FwdWgmmaSm90aConfig> class Pieces>
void expect_same_bits(const std::vector<int>& rows_q, const std::vector<int>& rows_kv, int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  World plain = world_of<C>(rows_q, rows_kv, false);
  test::Machine machine;
  ASSERT_EQ((run<C, Pieces>(plain, machine, blocks)), "");
  const auto numbers = std::ranges::count_if(plain.o, [](u16 x) { return (x & 0x7fff) <= 0x7f80; });
  EXPECT_GE(numbers, plain.begins_q.back() * kHeadsQ * kColumns) << "rows are written";
  constexpr FwdWgmmaSm90aConfig kJobs = with_jobs(C);
  World other = world_of<kJobs>(rows_q, rows_kv, true);
  constexpr unsigned kFirst = 4 * C.warpgroups;  // warp of those that do not compute
  for (const auto& [late, slow] :
       {std::pair{false, 1u}, {false, kFirst + 1}, {true, kFirst}, {true, kFirst + 3}}) {
    test::Machine its;
    its.late = late, its.slow_warp = slow;
    const std::string failure = run<kJobs, Pieces>(other, its, blocks);
    EXPECT_EQ(failure, "") << "slow warp " << slow << (late ? ", late" : "");
    EXPECT_TRUE(other.o == plain.o) << "slow warp " << slow << (late ? ", late" : "");
    EXPECT_TRUE(other.lse == plain.lse) << "slow warp " << slow << (late ? ", late" : "");
  }
}

/// What warpgroups leave out of their lists changes no bit, nor does what they begin early.
template <FwdWgmmaSm90aConfig C, FwdWgmmaSm90aConfig Other = C>
void expect_same_in_parts(const std::vector<int>& rows_q, const std::vector<int>& rows_kv,
                          int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  World whole = world_of<C>(rows_q, rows_kv, false),
        parts = world_of<Other>(rows_q, rows_kv, false);
  test::Machine machine;
  ASSERT_EQ((run<C, OfLists>(whole, machine, blocks)), "");
  bool left_out = false;
  for (std::size_t i = 0; i < parts.parts.size(); ++i) {
    const int tiles = parts.counts[i / C.warpgroups];
    left_out |= WalkPart::of(parts.parts[i], tiles).count < tiles;
  }
  EXPECT_TRUE(left_out) << "there is something to leave out";
  for (const auto& [late, slow] : {std::pair{false, 1u}, {false, 5u}, {true, 4u * C.warpgroups}}) {
    test::Machine its;
    its.late = late, its.slow_warp = slow;
    EXPECT_EQ((run<Other, OfListsInParts>(parts, its, blocks)), "") << "slow warp " << slow;
    EXPECT_TRUE(parts.o == whole.o) << "slow warp " << slow;
    EXPECT_TRUE(parts.lse == whole.lse) << "slow warp " << slow;
  }
}

/// Some fragments see some pairs of a key tile alone, by bits.
template <FwdWgmmaSm90aConfig C>
void set_text_bits(World& w) {
  std::mt19937 random(13);
  for (KeyGroup& group : w.groups)
    group.rows |= (group.rows & random() & 0xffff) << KeyGroup::kMostFragments;
  w.bits.resize(w.counts.size() * test::index_of(ceil_div(w.params.fwd.seqlen_kv, C.block_n)) *
                (C.block_m() / 16) * kTextBitsWords<C.block_n>);
  for (u32& word : w.bits) word = static_cast<u32>(random());
  w.params.lists.bits = w.bits.data();
}

constexpr FwdWgmmaSm90aConfig with_bits(FwdWgmmaSm90aConfig c) {
  c.text_bits = 1;
  return c;
}
/// Bits that come with the keys hide what they do where they are read as scores are there.
template <FwdWgmmaSm90aConfig C>
void expect_same_under_bits(const std::vector<int>& rows_q, const std::vector<int>& rows_kv,
                            int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  World asked = world_of<C>(rows_q, rows_kv, false), brought = world_of<C>(rows_q, rows_kv, false),
        whole = world_of<C>(rows_q, rows_kv, false);
  set_text_bits<C>(asked), set_text_bits<C>(brought);
  test::Machine machine;
  ASSERT_EQ((run<C, OfListsInParts>(whole, machine, blocks)), "");
  ASSERT_EQ((run<C, OfBits>(asked, machine, blocks)), "");
  EXPECT_FALSE(asked.lse == whole.lse) << "bits hide something";
  for (const auto& [late, slow] : {std::pair{false, 1u}, {false, 5u}, {true, 4u * C.warpgroups}}) {
    test::Machine its;
    its.late = late, its.slow_warp = slow;
    EXPECT_EQ((run<with_bits(C), OfBits>(brought, its, blocks)), "") << "slow warp " << slow;
    EXPECT_TRUE(brought.o == asked.o) << "slow warp " << slow;
    EXPECT_TRUE(brought.lse == asked.lse) << "slow warp " << slow;
  }
}

/// Tiles of rows that workers load change no bit of what lanes read ahead by themselves.
template <FwdWgmmaSm90aConfig C, template <FwdWgmmaSm90aConfig> class Pieces, class T = Bf16>
void expect_same_rows(const std::vector<int>& rows_q, const std::vector<int>& rows_kv, int blocks) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  ASSERT_LE(*std::ranges::max_element(rows_q), kMostRows);
  ASSERT_LE(*std::ranges::max_element(rows_kv), kRowPitch);
  const std::vector<T> bias = bias_of<T>(static_cast<int>(rows_q.size()));
  World plain = world_of<C>(rows_q, rows_kv, false);
  plain.params.code.words[0] = reinterpret_cast<std::uintptr_t>(bias.data());
  test::Machine machine;
  ASSERT_EQ((run<C, Biased<Pieces, T>::template Of>(plain, machine, blocks)), "");
  constexpr FwdWgmmaSm90aConfig kTiled = with_rows(C, sizeof(T));
  static_assert(kTiled.may_tile_rows());
  World tiled = world_of<kTiled>(rows_q, rows_kv, false);
  tiled.params.code = plain.params.code;
  constexpr unsigned kFirst = 4 * C.warpgroups;  // warp of those that do not compute
  for (const auto& [late, slow] : {std::pair{false, 1u},
                                   {true, 4u * C.warpgroups - 1},
                                   {false, kFirst + 1},
                                   {true, kFirst},
                                   {true, kFirst + 3}}) {
    test::Machine its;
    its.late = late, its.slow_warp = slow;
    const std::string failure = run<kTiled, Biased<Pieces, T>::template Of>(tiled, its, blocks);
    EXPECT_EQ(failure, "") << "slow warp " << slow << (late ? ", late" : "");
    EXPECT_TRUE(tiled.o == plain.o) << "slow warp " << slow << (late ? ", late" : "");
    EXPECT_TRUE(tiled.lse == plain.lse) << "slow warp " << slow << (late ? ", late" : "");
  }
}

TEST(RowTilesOnTheHost, OfOneQueryTile) {
  expect_same_rows<with_turns(config_of(2, kGridPlain)), Dense>({150}, {140}, 0);
  expect_same_rows<with_turns(config_of(2, kGridPlain)), Dense, float>({150}, {140}, 0);
}
TEST(RowTilesOnTheHost, OfTilesOfAnyWidth) {
  expect_same_rows<with_keys(config_of(1, kGridPlain), 80), Dense>({70}, {190}, 0);
  expect_same_rows<with_keys(config_of(1, kGridPlain), 96), Dense>({70}, {190}, 0);
  expect_same_rows<with_keys(config_of(1, kGridPlain), 16), Dense, float>({70}, {50}, 0);
}
TEST(RowTilesOnTheHost, OfJoinedTiles) {
  expect_same_rows<config_of(2, kGridStatic), Dense>({150, 150}, {140, 140}, 2);
  expect_same_rows<with_turns(with_window(config_of(2, kGridDynamic))), Dense>({200}, {230}, 2);
  expect_same_rows<with_turns(with_window(config_of(3, kGridDynamic))), Dense>({250}, {300}, 1);
}
TEST(RowTilesOnTheHost, OfTilesWhoseNumberIsTold) {
  expect_same_rows<test::with_q_in_regs(with_window(config_of(2, kGridDynamic))), Dense>({200},
                                                                                         {230}, 2);
  expect_same_rows<test::with_q_in_regs(config_of(1, kGridStatic)), Dense>({150}, {130}, 3);
}
TEST(RowTilesOnTheHost, OfLengths) {
  expect_same_rows<with_lengths(config_of(2, kGridPlain), kUsedLengths), OfUsedLengths>(
      {150, 0, 20, 1}, {140, 90, 0, 5}, 0);
  expect_same_rows<with_lengths(config_of(1, kGridDynamic), kPackedLengths), OfPackedLengths>(
      {70, 0, 20, 130}, {100, 30, 0, 200}, 2);
}
TEST(RowTilesOnTheHost, OfPages) {
  expect_same_rows<with_pages(with_turns(config_of(2, kGridDynamic))), OfPages>({200, 20, 1},
                                                                                {200, 0, 77}, 2);
}

TEST(ListsInParts, AreWalkedOverByWarpgroupsAsFarAsTheySee) {
  constexpr auto kTwo = with_turns(with_lists(config_of(2, kGridDynamic), 64));
  expect_same_in_parts<kTwo>({200}, {700}, 2);
  expect_same_in_parts<test::with_q_in_regs(kTwo)>({270}, {420}, 3);
  expect_same_in_parts<with_turns(with_lists(config_of(3, kGridDynamic), 64))>({330}, {700}, 2);
  static_assert(with_text(with_turns(config_of(2, kGridDynamic))).joins() && !kTwo.joins());
  expect_same_in_parts<kTwo, with_text(with_turns(config_of(2, kGridDynamic)))>({400}, {700}, 2);
  expect_same_in_parts<with_turns(with_lists(config_of(3, kGridDynamic), 64)),
                       with_text(with_turns(config_of(3, kGridDynamic)))>({530}, {420}, 1);
  // Those that take no turns leave out any tile as they come to it.
  expect_same_in_parts<with_lists(config_of(2, kGridDynamic), 64)>({200}, {500}, 2);
}

TEST(BitsOfTexts, ComeWithTheKeys) {
  constexpr auto kTwo = with_text(with_turns(config_of(2, kGridDynamic)));
  static_assert(kTwo.joins());
  expect_same_under_bits<kTwo>({400}, {700}, 2);
  expect_same_under_bits<with_keys(kTwo, 112)>({270, 270}, {420, 420}, 3);
  expect_same_under_bits<test::with_q_in_regs(with_keys(kTwo, 80))>({270}, {420}, 3);
  expect_same_under_bits<with_text(with_turns(config_of(3, kGridDynamic)))>({330}, {700}, 2);
  expect_same_under_bits<with_text(config_of(2, kGridDynamic))>({200}, {500}, 2);
}

TEST(JobsOnTheHost, OfOneQueryTile) {
  expect_same_bits<with_turns(config_of(2, kGridPlain)), Dense>({150}, {140}, 0);
}
TEST(JobsOnTheHost, OfJoinedTiles) {
  expect_same_bits<config_of(2, kGridStatic), Dense>({150, 150}, {140, 140}, 2);
  expect_same_bits<with_turns(with_window(config_of(2, kGridDynamic))), Dense>({200}, {230}, 2);
}
TEST(JobsOnTheHost, OfTilesWhoseNumberIsTold) {
  expect_same_bits<test::with_q_in_regs(with_window(config_of(2, kGridDynamic))), Dense>({200},
                                                                                         {230}, 2);
  expect_same_bits<test::with_q_in_regs(config_of(1, kGridStatic)), Dense>({150}, {130}, 3);
}
TEST(JobsOnTheHost, OfUsedLengths) {
  expect_same_bits<with_lengths(config_of(2, kGridPlain), kUsedLengths), OfUsedLengths>(
      {150, 0, 20, 1}, {140, 90, 0, 5}, 0);
}
TEST(JobsOnTheHost, OfPackedLengthsInJoinedTiles) {
  expect_same_bits<with_lengths(config_of(1, kGridDynamic), kPackedLengths), OfPackedLengths>(
      {70, 0, 20, 130}, {100, 30, 0, 200}, 2);
}
TEST(JobsOnTheHost, OfPages) {
  expect_same_bits<with_pages(config_of(1, kGridPlain)), OfPages>({70, 20, 1}, {200, 0, 77}, 0);
  expect_same_bits<with_pages(with_turns(config_of(2, kGridDynamic))), OfPages>({200, 20, 1},
                                                                                {200, 0, 77}, 2);
}
TEST(JobsOnTheHost, OfLists) {
  expect_same_bits<with_lists(config_of(2, kGridDynamic), 16), OfLists>({200}, {300}, 2);
  expect_same_bits<test::with_q_in_regs(with_turns(with_lists(config_of(2, kGridDynamic), 32))),
                   OfLists>({200}, {300}, 2);
}
TEST(JobsOnTheHost, OfListsAndPages) {
  expect_same_bits<with_pages(with_lists(config_of(1, kGridDynamic), 64)), OfListsAndPages>(
      {70, 20, 1}, {200, 0, 77}, 2);
}

}  // namespace
}  // namespace attnforge
