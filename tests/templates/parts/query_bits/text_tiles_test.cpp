// text_tiles_test.cpp - the step that tells a backward kernel what a mask's text hides of its
// tiles, on threads of the host, as of every pair by itself; and the walk over what it leaves.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "backward/key_tile.cuh"
#include "backward/params.h"
#include "pieces/fixed_lengths.cuh"
#include "pieces/window_mask.cuh"
#include "parts/query_bits/mask.cuh"
#include "parts/query_bits/queries.cuh"
#include "parts/query_bits/step_text_bits.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kBatch = 2, kQueries = 1300, kKeys = 520, kHeads = 4, kHeadsKv = 2;

/// Of documents, of which each sequence has its own; a weight beside each; and whether q + k + head
/// is no multiple of `rare`, if that is not 0.
struct Text {
  static inline std::vector<int> of_query{}, of_key{};
  static inline std::vector<float> weight{};
  static inline int rare = 0;

  static int number(int sequence, int of, int position) {
    EXPECT_TRUE(sequence >= 0 && sequence < kBatch && position >= 0 && position < of)
        << "the text is asked about what is there";
    return sequence * of + position;
  }
  static int document_q(int sequence, int query) {
    return of_query.at(static_cast<std::size_t>(number(sequence, kQueries, query)));
  }
  static int document_kv(int sequence, int key) {
    return of_key.at(static_cast<std::size_t>(number(sequence, kKeys, key)));
  }
  static float weight_of(int key) { return weight.at(static_cast<std::size_t>(key)); }
  static bool sees(int sequence, int head, int query, int key) {
    return document_q(sequence, query) == document_kv(sequence, key) && 0.5f <= weight_of(key) &&
           (rare == 0 || (query + key + head) % rare != 0);
  }
};
struct Rule {
  template <class Params, class Lengths>
  static auto of_row(const Params&, const Lengths&, int sequence, int head, int query, int key) {
    return [=](int i) { return Text::sees(sequence, head, query, key + i); };
  }
};
/// The same of booleans of each head, whose rows are `stride` apart.
struct ReadRule : Rule {
  static constexpr bool kReadsRows = true;
  static inline std::vector<u8> seen{};
  static inline int stride = 0;

  template <class Params, class Lengths>
  static const bool* place(const Params&, const Lengths&, int sequence, int head, int query,
                           int key) {
    return reinterpret_cast<const bool*>(seen.data()) +
           ((sequence * kHeads + head) * kQueries + query) * stride + key;
  }
  static void fill(int of_row) {
    stride = of_row;
    seen.assign(static_cast<std::size_t>(kBatch * kHeads * kQueries * stride), 0x55);
    for (int sequence = 0; sequence < kBatch; ++sequence)
      for (int head = 0; head < kHeads; ++head)
        for (int q = 0; q < kQueries; ++q)
          for (int k = 0; k < kKeys; ++k)
            seen[static_cast<std::size_t>(((sequence * kHeads + head) * kQueries + q) * stride +
                                          k)] = static_cast<u8>(Text::sees(sequence, head, q, k)
                                                                    ? 1 << (q + k) % 8
                                                                    : 0);
  }
};
/// kRest: something that no term tells is joined by "and".
template <int kTerms, bool kRest>
struct TermsOf {
  static constexpr int kCount = kTerms;
  static TermVerdicts value(const TermVerdicts* t) {
    TermVerdicts all = kTerms > 1 ? both(t[0], t[1]) : t[0];
    return kRest ? both(all, TermVerdicts::unknown()) : all;
  }
  static constexpr TermRelation relation(int term) {
    return term == 0 ? TermRelation::kEqual : TermRelation::kAtMost;
  }
  template <int kTerm, class Params, class Lengths>
  static auto of_query(const Params&, const Lengths&, int sequence, int, int query) {
    if constexpr (kTerm == 0) return Text::document_q(sequence, query);
    if constexpr (kTerm == 1) return 0.5f;
  }
  template <int kTerm, class Params, class Lengths>
  static auto of_key(const Params&, const Lengths&, int sequence, int, int key) {
    if constexpr (kTerm == 0) return Text::document_kv(sequence, key);
    if constexpr (kTerm == 1) return Text::weight_of(key);
  }
};
struct NoTerms {
  static constexpr int kCount = 0;
};

struct Params {
  FwdParams fwd;
  BwdScratch scratch;
};

/// What a kernel has of a key tile.
struct HostKeys {
  const Params& params;
  int sequence, first_key, kv_head;
  FixedLengths lengths;
  static int group() { return kHeads / kHeadsKv; }
  int first_query_head() const { return kv_head * group(); }
};

/// For transposed scores bits are what is asked.
struct NothingAsked {};

/// The scores that a warp has of a tile are hidden as the text says: all rows of some keys, or
/// kRows of them.
template <class Masks, int kBlockM, int kBlockN, int kKeyFragments, int kRows = kBlockM>
void expect_the_pairs_of_the_text(const HostKeys& keys, QueryPlace place, bool windows,
                                  int row = 0) {
  using Mask = PairBitsMask<WindowMask<true>, NothingAsked, Masks, kBlockM, kBlockN>;
  constexpr int kFragments = kRows / 8;
  const QueriesOfHead<Params, FixedLengths> tile{keys.params, keys.lengths, keys.sequence,
                                                 place.head};
  for (int of_warp = 0; of_warp < kBlockN; of_warp += 16 * kKeyFragments)
    test::run_on_host(1, 32, [&] {
      float s[kKeyFragments][kFragments][4];
      fill(s, 1.5f);
      const int lane = thread_index() % 32, first_row = place.m * kBlockM + row,
                first_key = keys.first_key + of_warp + MmaFragment::row(lane);
      Mask::apply(TransposedScores<float[kKeyFragments][kFragments][4]>{s, first_row, first_key},
                  tile);
      for (int i = 0; i < kKeyFragments; ++i)
        for (int j = 0; j < kFragments; ++j)
          for (int of_lane = 0; of_lane < 4; ++of_lane) {
            const int query = first_row + j * 8 + MmaFragment::column(lane) + of_lane % 2,
                      key = first_key + i * 16 + of_lane / 2 * 8;
            if (query >= kQueries || key >= kKeys) continue;
            const bool seen = Text::sees(keys.sequence, place.head, query, key);
            if (!seen || !windows) {
              EXPECT_EQ(s[i][j][of_lane], seen ? 1.5f : negative_infinity()) << query << " " << key;
            }
          }
    });
}

template <class Terms, int kBlockM, int kBlockN, bool kOfHeads, bool kBits = true,
          class Rule = Rule>
void expect_the_tiles_of_the_text(int window_left, int window_right) {
  using Window = QueryWalk<true, true>;
  using Masks = MasksOfText<kOfHeads, true>;
  using Step = TextTiles<FixedLengths, Rule, Terms, Window, Masks, kBlockM, kBlockN, kBits>;
  Params params{};
  FwdParams& p = params.fwd;
  p.batch = kBatch, p.seqlen_q = kQueries, p.seqlen_kv = kKeys;
  p.num_heads_q = kHeads, p.num_heads_kv = kHeadsKv;
  p.window_left = window_left, p.window_right = window_right;
  const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(params);
  const i64 of_pairs = kBits ? bits.pair_bytes(kBlockM, kBlockN) : 0;
  std::vector<char> workspace(static_cast<std::size_t>(bits.bytes() + of_pairs), 0x55);
  params.scratch.lse_log2 = reinterpret_cast<float*>(workspace.data() + workspace.size());
  test::run_on_host(static_cast<unsigned>(bits.lists() * bits.words * Step::kBlocksOfWord),
                    Step::kThreads, [&] { Step::run(params); });

  using Walk = ListedQueries<Window, kBlockM, kBlockN, Masks>;
  int left_out = 0, clear = 0;
  for (int sequence = 0; sequence < kBatch; ++sequence)
    for (int kv_head = 0; kv_head < kHeadsKv; ++kv_head)
      for (int first_key = 0; first_key < kKeys; first_key += kBlockN) {
        const FixedLengths lengths(params, sequence);
        const HostKeys keys{params, sequence, first_key, kv_head, lengths};
        const Walk walk = Walk::of_tile(params, keys, kBlockM, kBlockN);
        QueryPlace place = walk.first();
        int count = 0;
        for (int head = keys.first_query_head(); head < keys.first_query_head() + 2; ++head)
          for (int m = walk.begin; m < walk.end; ++m) {
            int seen = 0, pairs = 0;
            for (int q = m * kBlockM; q < std::min((m + 1) * kBlockM, kQueries); ++q)
              for (int k = first_key; k < std::min(first_key + kBlockN, kKeys); ++k, ++pairs)
                seen += Text::sees(sequence, head, q, k);
            if (seen == 0) {
              ++left_out;
              continue;
            }
            ++count;
            ASSERT_EQ(place.head, head) << first_key << " " << m;
            ASSERT_EQ(place.m, m) << first_key << " " << head;
            EXPECT_EQ(walk.masked(place), seen < pairs || Window(walk).masked(m));
            clear += !walk.masked(place);
            if (kBits && walk.masked(place) && count % 5 == 0) {
              const bool windows = window_left != kOpenWindow || window_right != kOpenWindow;
              expect_the_pairs_of_the_text<Masks, kBlockM, kBlockN, 1>(keys, place, windows);
              for (int row = 0; row < kBlockM; row += 16)
                expect_the_pairs_of_the_text<Masks, kBlockM, kBlockN, 1, 16>(keys, place, windows,
                                                                             row);
              if (kBlockN % 32 == 0)
                expect_the_pairs_of_the_text<Masks, kBlockM, kBlockN, 2>(keys, place, windows);
            }
            place = walk.after(place);
          }
        EXPECT_EQ(walk.count(), count);
        EXPECT_GE(place.head, keys.first_query_head() + 2) << "the walk ends";
      }
  EXPECT_GT(left_out, 0);
  EXPECT_TRUE(clear > 0 || Text::rare != 0);
}

class TextTilesOfTexts : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(5);
    const auto documents = [&](int tokens) {
      std::vector<int> of_token;
      for (int sequence = 0; sequence < kBatch; ++sequence)
        for (int i = 0, document = sequence; i < tokens; ++i) {
          if (random() % static_cast<unsigned>(tokens / 3) == 0) ++document;
          of_token.push_back(document);
        }
      return of_token;
    };
    Text::of_query = documents(kQueries);
    Text::of_key = documents(kKeys);
    Text::weight.assign(kKeys, 1.0f);
    std::fill_n(Text::weight.begin() + 100, 130, 0.0f);
    Text::rare = 0;
  }
};

TEST_F(TextTilesOfTexts, AreThoseOfEveryPairWhereTermsTellOfMany) {
  expect_the_tiles_of_the_text<TermsOf<2, false>, 64, 128, false>(kOpenWindow, kOpenWindow);
  expect_the_tiles_of_the_text<TermsOf<2, false>, 32, 64, false>(kOpenWindow, 0);
}

TEST_F(TextTilesOfTexts, AreThoseOfEveryPairWhereNoTermDoes) {
  expect_the_tiles_of_the_text<NoTerms, 80, 96, false>(kOpenWindow, kOpenWindow);
  expect_the_tiles_of_the_text<NoTerms, 16, 48, false, false>(200, 100);
}

TEST_F(TextTilesOfTexts, AreThoseOfRowsOfBooleans) {
  Text::rare = 7;
  for (const int stride : {528, kKeys}) {
    ReadRule::fill(stride);
    expect_the_tiles_of_the_text<NoTerms, 128, 128, true, true, ReadRule>(kOpenWindow, kOpenWindow);
    expect_the_tiles_of_the_text<NoTerms, 80, 96, true, true, ReadRule>(300, 0);
  }
}

TEST_F(TextTilesOfTexts, AskPairsWhereOtherTermsMayHideSomeOfAHead) {
  Text::rare = 7;
  expect_the_tiles_of_the_text<TermsOf<1, true>, 48, 128, true>(kOpenWindow, kOpenWindow);
  expect_the_tiles_of_the_text<TermsOf<2, true>, 112, 64, true>(300, 0);
}

}  // namespace
}  // namespace attnforge
