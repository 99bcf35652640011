// bwd_masks_test.cpp - block masks and the user's texts in the backward pass, on threads of the
// host: bwd_naive beside plain loops in fp64, the derivative of a text beside differences, and
// which query tiles a key tile walks over.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <type_traits>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "tests/templates/backward/backward_world.h"
#include "oracle/bwd_naive/kernel.cuh"
#include "parts/block_mask/params.h"
#include "parts/user_code/params.h"
#include "parts/block_mask/mask.cuh"
#include "parts/user_code/mask.cuh"
#include "parts/query_bits/queries.cuh"
#include "parts/user_code/score.cuh"
#include "parts/user_code/slope.cuh"
#include "pieces/window_mask.cuh"
#include "parts/query_bits/step_bits.cuh"
// clang-format on

namespace attnforge {
namespace {

using namespace test;

/// Lists of a random mask: blocks that are full, partial with bits, and partial without.
struct RandomBlocks {
  int block_q, block_kv, heads, rows, columns;
  std::vector<int> row_begin{0}, entries, bit_blocks;
  std::vector<unsigned> bits;

  RandomBlocks(int seqlen_q, int seqlen_kv, int of_q, int of_kv, int mask_heads, double density)
      : block_q(of_q),
        block_kv(of_kv),
        heads(mask_heads),
        rows(ceil_div(seqlen_q, of_q)),
        columns(ceil_div(seqlen_kv, of_kv)) {
    std::mt19937 random(11);
    int blocks = 0;
    for (int row = 0; row < heads * rows; ++row) {
      for (int column = 0; column < columns; ++column) {
        if (double(random() % 1000) >= 1000 * density) continue;
        const unsigned kind = random() % 3;
        entries.push_back(column * 2 + (kind != 0));
        bit_blocks.push_back(kind == 1 ? blocks++ : -1);
      }
      row_begin.push_back(static_cast<int>(entries.size()));
    }
    for (int i = 0; i < blocks * block_q * mask_words_per_row(block_kv); ++i)
      bits.push_back(random());
  }
  BlockMaskParams params() const {
    return {.row_begin = row_begin.data(),
            .columns = entries.data(),
            .bits = bits.data(),
            .bit_blocks = bit_blocks.data(),
            .mask_heads = heads,
            .mask_batch = 1,
            .q_blocks = rows,
            .unused = 0};
  }
  /// -1: not present.
  int entry(int head, int query, int key) const {
    const auto row = index(head * rows + query / block_q);
    for (int e = row_begin[row]; e < row_begin[row + 1]; ++e)
      if (entries[index(e)] / 2 == key / block_kv) return e;
    return -1;
  }
  bool full(int e) const { return entries[index(e)] % 2 == 0; }
  /// What a partial block has bits for, and true for one without.
  bool bit(int e, int query, int key) const {
    const int block = bit_blocks[index(e)];
    if (block < 0) return true;
    const int words = mask_words_per_row(block_kv), at = key % block_kv;
    const int word = (block * block_q + query % block_q) * words + at / 32;
    return (bits[index(word)] >> (at % 32) & 1) != 0;
  }
};

using NaiveParams = WithCode<WithBlockMask<BwdNaiveParams>, 2>;

/// Texts as an entry has them.
struct HostCode {
  using Words = CodeParams<2>;
  static constexpr bool kScoreReadsByKey = false, kMaskReadsByKey = false;
  [[maybe_unused]] static constexpr bool kTanh = true;

  template <class Tanh, class S>
  static auto score(const Words&, const Tanh& tanhf, S s, int, int head, int q, KeyPosition k, int,
                    int) {
    return value_of_score((2.0f * tanhf(s / 2) + 0.125f * float(head + 1) * (k - q)));
  }
  static bool mask(const Words&, int, int, int q, KeyPosition k, int, int) {
    return value_of_mask(((q + k) % 3 != 0));
  }
};

struct CodePieces {
  using Lengths = FixedLengths;
  using Mask = UserMask<HostCode, WindowMask<true>>;
  using Score = UserScore<HostCode>;
  using Slope = UserSlope<HostCode>;
};

/// The same in fp64.
struct PlainCode {
  const RandomBlocks& blocks;

  bool sees(int, int head, int query, int key) const {
    const int e = blocks.entry(head, query, key);
    if (e < 0) return false;
    return blocks.full(e) || (blocks.bit(e, query, key) && (query + key) % 3 != 0);
  }
  static ScoreOfPair score(double s, int head, int query, int key) {
    const double x = std::tanh(s / 2);
    return {2 * x + 0.125 * (head + 1) * (key - query), 1 - x * x};
  }
};

template <bool kSoftcap>
void expect_gradients_of_code() {
  BackwardWorld w(kSoftcap);
  const RandomBlocks blocks(kQueries, kKeys, 4, 4, kHeads, 0.7);
  NaiveParams params{};
  static_cast<BwdNaiveParams&>(params) = w.params;
  params.mask = blocks.params();
  std::vector<double> dq(w.dq.size()), dk(w.dk.size()), dv(w.dv.size());
  add_gradients(w, kSoftcap, dq, dk, dv, PlainCode{blocks});
  constexpr BwdNaiveConfig kConfig = [] {
    BwdNaiveConfig c{shape(kSoftcap, false), 64};
    c.mask_block_q = c.mask_block_kv = 4, c.mask_bits = 1;
    c.user_mask = c.user_score = 1;
    return c;
  }();
  run_on_host(static_cast<unsigned>(w.blocks()), 64,
              [&] { BwdNaive<kConfig, CodePieces, NaiveParams>::run(params); });
  expect_near(w.dq, dq, "dq");
  expect_near(w.dk, dk, "dk");
  expect_near(w.dv, dv, "dv");
}

TEST(BwdNaive, AsksBlocksAndTextsOfEachPair) {
  expect_gradients_of_code<false>();
  expect_gradients_of_code<true>();
}

// ---- the derivative of a text ----

/// As a text is compiled: unqualified names, and whatever the score is.
template <class S>
auto all_that_texts_do(S s, KeyPosition k, int q) {
  const float x = 0.75f;
  auto sum = s * 2 + 0.5f * (k - q) - x * s / 3 + (k - q) * s - s * k;
  sum += s * s;
  sum *= 0.5f;
  return sum + expf(-s) / (1 + s * s) + tanf(s / 9) + sqrtf(fabsf(s) + 1) + logf(s * s + 1) +
         fmaxf(s, 0.0f) - fminf(s, x) + max(s, float(k)) + powf(s * s + 1, 1.5f) + powf(2.0f, s) +
         erff(s) + sinf(s) * cosf(x * s) + log1pf(s * s) + expm1f(s / 2) + atanf(s) +
         (s > 0.3f ? s * 3 : 1 - s) + (k < q ? 0.0f : s) + cbrtf(s + 5) + exp2f(s) + log2f(s + 9) +
         rsqrtf(s + 9) + sinhf(s) - coshf(s) + floorf(s) + fmaf(s, x, s) + abs(s) - -s;
}

TEST(ScoreWithSlope, HasTheDerivativeOfWhateverATextDoes) {
  const KeyPosition k{3, 2};
  for (const float s : {-2.7f, -0.6f, 0.1f, 0.45f, 1.9f}) {
    const auto at = all_that_texts_do(slopes::ScoreWithSlope(s, 1), k, 7);
    EXPECT_NEAR(at.value, float(all_that_texts_do(s, k, 7)), 1e-4f * std::fabs(at.value));
    const double step = 1e-2;
    const auto value = [&](double x) { return double(all_that_texts_do(float(x), k, 7)); };
    const double slope = (8 * (value(s + step) - value(s - step)) -
                          (value(s + 2 * step) - value(s - 2 * step))) /
                         (12 * step);
    EXPECT_NEAR(slopes::slope_of(at), slope, 2e-3 * (1 + std::fabs(slope))) << s;
  }
  EXPECT_EQ(slopes::slope_of(1.5f), 0) << "of a text that does not name s";
}

/// A derivative that is lost is no derivative of 0.
static_assert(!std::is_convertible_v<slopes::ScoreWithSlope, float>);

// ---- which tiles are walked over ----

constexpr int kBlockM = 32, kBlockN = 64, kRowsOfHead = 1200, kKeysOfHead = 500, kGroup = 2;

struct TilesParams {
  FwdParams fwd;
  BwdScratch scratch;
  BlockMaskParams mask;
};

struct HostKeys {
  const TilesParams& params;
  int sequence, first_key, kv_head;
  FixedLengths lengths;
  int group() const { return kGroup; }
  int first_query_head() const { return kv_head * kGroup; }
};

template <int kBlockQ, int kBlockKv>
void expect_the_tiles_of_the_mask(int mask_heads, int window_left) {
  constexpr int kHeadsKvHere = 2, kHeadsHere = kHeadsKvHere * kGroup;
  const RandomBlocks blocks(kRowsOfHead, kKeysOfHead, kBlockQ, kBlockKv, mask_heads,
                            kBlockQ == 16 ? 0.03 : 0.15);
  TilesParams params{};
  params.fwd.seqlen_q = kRowsOfHead, params.fwd.seqlen_kv = kKeysOfHead;
  params.fwd.num_heads_q = kHeadsHere, params.fwd.num_heads_kv = kHeadsKvHere;
  params.fwd.window_left = window_left, params.fwd.window_right = 1 << 20;
  params.mask = blocks.params();
  const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN>(params);
  std::vector<char> workspace(index(bits.bytes()), 0x55);
  params.scratch.lse_log2 = reinterpret_cast<float*>(workspace.data() + workspace.size());
  using Step = BwdTiles<kBlockM, kBlockN, kBlockQ, kBlockKv>;
  run_on_host(static_cast<unsigned>(ceil_div(int(bits.lists()) * bits.words, Step::kThreads / 32)),
              Step::kThreads, [&] { Step::run(params); });

  using Walk = ListedQueries<QueryWalk<true, false>, kBlockM, kBlockN>;
  const FixedLengths lengths(params, 0);
  for (int kv_head = 0; kv_head < kHeadsKvHere; ++kv_head) {
    for (int first_key = 0; first_key < kKeysOfHead; first_key += kBlockN) {
      const HostKeys keys{params, 0, first_key, kv_head, lengths};
      const Walk walk = Walk::of_tile(params, keys, kBlockM, kBlockN);
      const int last_key = std::min(first_key + kBlockN, kKeysOfHead) - 1;
      std::vector<QueryPlace> wanted;
      std::vector<bool> hides;
      for (int head = kv_head * kGroup; head < (kv_head + 1) * kGroup; ++head) {
        for (int m = walk.begin; m < walk.end; ++m) {
          bool seen = false, all = true;
          for (int q = m * kBlockM; q < std::min((m + 1) * kBlockM, kRowsOfHead); q += 16)
            for (int k = first_key; k <= last_key; k += 16) {
              const int e = blocks.entry(head * mask_heads / kHeadsHere, q, k);
              seen |= e >= 0, all &= e >= 0 && blocks.full(e);
            }
          if (seen) wanted.push_back({head, m}), hides.push_back(!all);
        }
      }
      ASSERT_EQ(walk.count(), static_cast<int>(wanted.size()));
      QueryPlace place = walk.first();
      for (std::size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_EQ(place.head, wanted[i].head);
        ASSERT_EQ(place.m, wanted[i].m);
        const bool at_edge = QueryWalk<true, false>(walk).masked(place.m);
        EXPECT_EQ(walk.masked(place), at_edge || hides[i]);
        const QueryPlace next = walk.after(place);
        if (i + 1 < wanted.size()) {
          EXPECT_EQ(walk.before(next).head, place.head);
          EXPECT_EQ(walk.before(next).m, place.m);
        } else {
          EXPECT_EQ(walk.last().head, place.head);
          EXPECT_EQ(walk.last().m, place.m);
        }
        place = next;
      }
      EXPECT_GE(place.head, keys.first_query_head() + kGroup) << "the walk ends";
    }
  }
}

TEST(ListedQueries, AreThoseThatTheMaskLetsSeeTheKeys) {
  expect_the_tiles_of_the_mask<64, 64>(1, 1 << 20);
  expect_the_tiles_of_the_mask<16, 128>(2, 1 << 20);
  expect_the_tiles_of_the_mask<128, 16>(4, 200);
  expect_the_tiles_of_the_mask<16, 16>(4, 100);
}

// ---- the mask of their pairs ----

struct HostRows {
  const NaiveParams& params;
  int batch, head;
  FixedLengths lengths;
  static int query_of(int row) { return row; }
  int query_head_of(int) const { return head; }
  int end_row() const { return lengths.q(); }
};

/// Rows first_row to first_row + 15 by keys first_key to first_key + 63, whose "lane" has all.
struct HostScores {
  float (&s)[16][64];
  int first_row, first_key;

  template <class OfRow>
  void for_each(const OfRow& of_row) const {
    for (int r = 0; r < 16; ++r) {
      const auto f = of_row(first_row + r, first_key);
      for (int i = 0; i < 64; ++i) s[r][i] = f(s[r][i], i);
    }
  }
};

TEST(BlockMask, HidesWhatBlocksBitsAndTheTextHide) {
  constexpr int kBlockQ = 16, kBlockKv = 32;
  const RandomBlocks blocks(kRowsOfHead, kKeysOfHead, kBlockQ, kBlockKv, 2, 0.5);
  NaiveParams params{};
  FwdParams& p = params.fwd;
  p.seqlen_q = kRowsOfHead, p.seqlen_kv = kKeysOfHead, p.num_heads_q = 4, p.num_heads_kv = 2;
  p.window_left = 300, p.window_right = 1 << 20;
  params.mask = blocks.params();
  using Mask = BlockMask<kBlockQ, kBlockKv, true, WindowMask<true>, BlockText<HostCode>>;
  const HostRows tile{params, 0, 3, FixedLengths(params, 0)};
  for (const int first_row : {0, 640, 1040}) {
    for (const int first_key : {0, 64, 448}) {
      float s[16][64];
      for (auto& row : s) std::ranges::fill(row, 1.5f);
      Mask::apply(HostScores{s, first_row, first_key}, tile);
      for (int r = 0; r < 16; ++r) {
        for (int i = 0; i < 64; ++i) {
          const int query = first_row + r, key = first_key + i;
          const bool window = key < kKeysOfHead && key >= query + kKeysOfHead - kRowsOfHead - 300;
          const bool seen = window && PlainCode{blocks}.sees(0, 1, query, key);
          ASSERT_EQ(s[r][i], seen ? 1.5f : negative_infinity()) << query << " " << key;
        }
      }
    }
  }
}

TEST(BlockMask, KnowsWhichKeysNoRowSees) {
  const RandomBlocks blocks(kRowsOfHead, kKeysOfHead, 16, 64, 1, 0.3);
  NaiveParams params{};
  FwdParams& p = params.fwd;
  p.seqlen_q = kRowsOfHead, p.seqlen_kv = kKeysOfHead, p.num_heads_q = p.num_heads_kv = 1;
  params.mask = blocks.params();
  using Mask = BlockMask<16, 64, true, WindowMask<true>, NoBlockText>;
  const HostRows tile{params, 0, 0, FixedLengths(params, 0)};
  run_on_host(1, 32, [&] {
    for (int row = 0; row < kRowsOfHead; row += 32) {
      for (int key = 0; key < kKeysOfHead; key += 32) {
        const bool any = blocks.entry(0, row, key) >= 0 ||
                         (row + 16 < kRowsOfHead && blocks.entry(0, row + 16, key) >= 0);
        EXPECT_EQ(Mask::any(tile, row, 32, key, 32), any) << row << " " << key;
      }
    }
  });
}

}  // namespace
}  // namespace attnforge
