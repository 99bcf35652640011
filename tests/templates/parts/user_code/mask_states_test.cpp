// mask_states_test.cpp - the step that asks a mask's text, on threads of the host: which groups of
// keys rows see, and the bits of those that they see some of, as of every pair by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/parts/lengths/params.h"
#include "templates/pieces/fixed_lengths.cuh"
#include "templates/pieces/window_mask.cuh"
#include "templates/parts/key_lists/step_lists.cuh"
#include "templates/parts/key_lists/walk.cuh"
#include "templates/parts/lengths/step_queue.cuh"
#include "templates/parts/user_code/lists.cuh"
#include "templates/parts/user_code/step_states.cuh"
// clang-format on

namespace attnforge {
namespace {

struct Params {
  FwdParams fwd;
  LengthsParams lengths;
  KeyListParams lists;
};

/// document_q[q] == document_kv[k], and whether q + k is no multiple of `rare`; or else whether it
/// is one, where `either`.
struct Text {
  static inline std::vector<int> of_query{}, of_key{};
  static inline std::vector<float> weight_q{}, weight_kv{};
  static inline int rare = 0;
  static inline bool either = false;

  static bool sees(int query, int key) {
    EXPECT_TRUE(query >= 0 && key >= 0 && query < static_cast<int>(of_query.size()) &&
                key < static_cast<int>(of_key.size()))
        << "the text is asked about pairs that are there";
    if (either && (query + key) % rare == 0) return true;
    return of_query[static_cast<std::size_t>(query)] == of_key[static_cast<std::size_t>(key)] &&
           weight_q[static_cast<std::size_t>(query)] <= weight_kv[static_cast<std::size_t>(key)] &&
           (rare == 0 || either || (query + key) % rare != 0);
  }
};
struct Rule {
  template <class Params, class Lengths>
  static auto of_row(const Params&, const Lengths&, int, int, int query, int key) {
    return [=](int i) { return Text::sees(query, key + i); };
  }
};
/// The same of booleans, rows of keys `stride` apart: what a text is that reads them.
struct ReadRule : Rule {
  static constexpr bool kReadsRows = true;
  static inline std::vector<u8> seen{};
  static inline int stride = 0;
  static inline std::atomic<int> asked = 0;

  template <class Params, class Lengths>
  static auto of_row(const Params& params, const Lengths& lengths, int sequence, int head,
                     int query, int key) {
    ++asked;
    return Rule::of_row(params, lengths, sequence, head, query, key);
  }
  template <class Params, class Lengths>
  static const bool* place(const Params&, const Lengths&, int, int, int query, int key) {
    return reinterpret_cast<const bool*>(seen.data()) + query * stride + key;
  }
  /// As the text says, of any bytes for true.
  static void fill(int queries, int keys, int of_row) {
    stride = of_row, asked = 0;
    seen.assign(static_cast<std::size_t>(queries * stride), 0x55);
    for (int q = 0; q < queries; ++q)
      for (int k = 0; k < keys; ++k)
        seen[static_cast<std::size_t>(q * stride + k)] = static_cast<u8>(
            Text::sees(q, k) ? 1 << (q + k) % 8 : 0);
  }
};
template <int kTerms, bool kAllTerms>
struct TermsOf {
  static constexpr int kCount = kTerms;
  static TermVerdicts value(const TermVerdicts* t) {
    TermVerdicts all = kAllTerms ? t[0] : both(t[0], TermVerdicts::unknown());
    if (kTerms > 1) all = both(all, t[1]);
    return all;
  }
  static constexpr TermRelation relation(int term) {
    return term == 0 ? TermRelation::kEqual : TermRelation::kAtMost;
  }
  template <int kTerm, class Params, class Lengths>
  static auto of_query(const Params&, const Lengths&, int, int, int query) {
    if constexpr (kTerm == 0) return Text::of_query.at(static_cast<std::size_t>(query));
    if constexpr (kTerm == 1) return Text::weight_q.at(static_cast<std::size_t>(query));
  }
  template <int kTerm, class Params, class Lengths>
  static auto of_key(const Params&, const Lengths&, int, int, int key) {
    if constexpr (kTerm == 0) return Text::of_key.at(static_cast<std::size_t>(key));
    if constexpr (kTerm == 1) return Text::weight_kv.at(static_cast<std::size_t>(key));
  }
};

/// The terms, or something that none of them tells.
struct EitherTerms : TermsOf<2, true> {
  static TermVerdicts value(const TermVerdicts* t) {
    return either(both(t[0], t[1]), TermVerdicts::unknown());
  }
};

constexpr int kQueries = 150, kKeys = 700, kUnwritten = 0x5a5a5a5a;

/// Runs the step and compares what it wrote with the text.
template <class Terms, int kBlockM, int kGroupKeys, bool kLeft, bool kBits, int kGroupsOfBlock,
          class Rule = Rule>
void expect_what_the_text_says(int window_left, int window_right) {
  using Kernel = MaskStates<FixedLengths, Rule, Terms, kBlockM, kGroupKeys, WindowMask<kLeft>,
                            kBits, kGroupsOfBlock>;
  constexpr int kFragments = kBlockM / 16, kGroups = (kKeys + kGroupKeys - 1) / kGroupKeys;
  const int lists = (kQueries + kBlockM - 1) / kBlockM;
  std::vector<u32> states(static_cast<std::size_t>(lists * kGroups), kUnwritten);
  std::vector<u32> bits(states.size() * kFragments * kTextBitsWords<kGroupKeys>, kUnwritten);
  Params params{};
  params.fwd.batch = 1;
  params.fwd.seqlen_q = kQueries;
  params.fwd.seqlen_kv = kKeys;
  params.fwd.window_left = window_left;
  params.fwd.window_right = window_right;
  params.lists = {.groups = nullptr,
                  .counts = nullptr,
                  .states = states.data(),
                  .bits = kBits ? bits.data() : nullptr,
                  .capacity = kGroups,
                  .m_blocks = lists,
                  .heads = 1,
                  .batch = 1,
                  .unused = {},
                  .parts = nullptr};
  TileQueue work{.tiles = 0, .lists_done = 77, .unused = {}};
  params.lengths.work = &work;
  const int blocks = (kGroups + kGroupsOfBlock - 1) / kGroupsOfBlock;
  test::run_on_host(static_cast<unsigned>(lists * blocks), Kernel::kThreads,
                    [&] { Kernel::run(params); });
  EXPECT_EQ(work.lists_done, 0u);
  const FixedLengths lengths(params, 0);
  for (int list = 0; list < lists; ++list)
    for (int group = 0; group < kGroups; ++group)
      for (int f = 0; f < kFragments; ++f) {
        const std::size_t at = static_cast<std::size_t>(list) * kGroups +
                               static_cast<std::size_t>(group);
        const int query = list * kBlockM + f * 16, key = group * kGroupKeys;
        const FragmentKeys keys = FragmentKeys::of(params.fwd, lengths, query);
        const bool in_window = key <= keys.last && (!kLeft || key + kGroupKeys > keys.first);
        int seen = 0, pairs = 0;
        for (int q = query; q < std::min(query + 16, kQueries); ++q)
          for (int k = key; k < std::min(key + kGroupKeys, kKeys); ++k, ++pairs)
            seen += Text::sees(q, k);
        const bool some = in_window && seen > 0, partial = some && seen < pairs;
        ASSERT_EQ(states[at] >> f & 1, some) << list << " " << group << " " << f;
        ASSERT_EQ(states[at] >> (KeyGroup::kMostFragments + f) & 1, partial)
            << list << " " << group << " " << f;
        if (!kBits || !partial) continue;
        for (int q = query; q < std::min(query + 16, kQueries); ++q)
          for (int k = key; k < std::min(key + kGroupKeys, kKeys); ++k) {
            const std::size_t word = (at * kFragments + static_cast<std::size_t>(f)) *
                                         kTextBitsWords<kGroupKeys> +
                                     static_cast<std::size_t>((q - query) *
                                                                  kTextBitsRowWords<kGroupKeys> +
                                                              (k - key) / 32);
            ASSERT_EQ(bits[word] >> (k - key) % 32 & 1, Text::sees(q, k)) << q << " " << k;
          }
      }
}

class MaskStatesOfTexts : public testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(5);
    const auto documents = [&](int tokens) {
      std::vector<int> of_token;
      for (int i = 0, document = 0; i < tokens; ++i) {
        if (random() % 90 == 0) ++document;
        of_token.push_back(document);
      }
      return of_token;
    };
    Text::of_query = documents(kQueries);
    Text::of_key = documents(kKeys);
    Text::weight_q.assign(kQueries, -1.5f);
    Text::weight_kv.assign(kKeys, 2.5f);
    Text::rare = 0;
    Text::either = false;
  }
};

TEST_F(MaskStatesOfTexts, AreThoseOfEveryPairWhereTermsTellOfMany) {
  expect_what_the_text_says<TermsOf<2, true>, 128, 96, false, true, 16>(kOpenWindow, kOpenWindow);
  expect_what_the_text_says<TermsOf<2, true>, 64, 16, true, true, 8>(120, 30);
}

TEST_F(MaskStatesOfTexts, AreThoseOfEveryPairWhereNoTermDoes) {
  expect_what_the_text_says<TermsOf<0, true>, 64, 48, false, true, 32>(kOpenWindow, 0);
  expect_what_the_text_says<TermsOf<0, true>, 128, 128, false, false, 8>(kOpenWindow, 0);
}

TEST_F(MaskStatesOfTexts, ReadRowsOfBooleansWhereTheyLieOnMultiplesOf16) {
  Text::rare = 7;
  ReadRule::fill(kQueries, kKeys, 704);
  expect_what_the_text_says<TermsOf<0, false>, 128, 64, false, true, 4, ReadRule>(kOpenWindow,
                                                                                  kOpenWindow);
  const int at_the_end = kQueries * 64 + (kQueries - kQueries / 16 * 16) * kKeys;
  EXPECT_GT(ReadRule::asked, 0);
  EXPECT_LE(ReadRule::asked, at_the_end);
  expect_what_the_text_says<TermsOf<0, false>, 192, 112, true, true, 4, ReadRule>(200, 100);
  expect_what_the_text_says<TermsOf<0, false>, 64, 80, false, false, 8, ReadRule>(kOpenWindow, 0);
  ReadRule::fill(kQueries, kKeys, kKeys);
  expect_what_the_text_says<TermsOf<0, false>, 128, 64, false, true, 4, ReadRule>(kOpenWindow,
                                                                                  kOpenWindow);
  EXPECT_GT(ReadRule::asked, at_the_end);
}

TEST_F(MaskStatesOfTexts, AskPairsWhereOtherTermsMayHideSome) {
  Text::rare = 7;
  expect_what_the_text_says<TermsOf<2, false>, 128, 64, false, true, 32>(kOpenWindow, kOpenWindow);
  expect_what_the_text_says<TermsOf<1, false>, 32, 112, true, false, 8>(300, 0);
  expect_what_the_text_says<TermsOf<2, false>, 192, 112, true, true, 4>(200, 0);
}

TEST_F(MaskStatesOfTexts, AskNothingOfWhatATermLetsBeSeenAnyway) {
  Text::rare = 11;
  Text::either = true;
  expect_what_the_text_says<EitherTerms, 128, 64, false, true, 8>(kOpenWindow, kOpenWindow);
  expect_what_the_text_says<EitherTerms, 64, 48, true, true, 16>(200, 40);
}

TEST_F(MaskStatesOfTexts, AskPairsWhereValuesAreNotNumbers) {
  for (std::size_t i = 0; i < Text::weight_kv.size(); i += 50)
    Text::weight_kv[i] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 3; i < Text::weight_q.size(); i += 60)
    Text::weight_q[i] = std::numeric_limits<float>::quiet_NaN();
  expect_what_the_text_says<TermsOf<2, true>, 128, 96, false, true, 32>(kOpenWindow, kOpenWindow);
}

struct SharedMemory {
  TileQueue queue{.tiles = -1, .lists_done = 77, .unused = {}};
  QueuedTile tiles[16];
};

/// The lists, which of their tiles warpgroups see, and the order of query tiles that the last block
/// makes.
template <int kBlockM, int kWarpgroups>
void expect_lists_and_their_order() {
  constexpr int kGroupKeys = 32, kTiles = (kQueries + kBlockM - 1) / kBlockM,
                kGroups = (kKeys + kGroupKeys - 1) / kGroupKeys;
  using Window = WindowMask<false>;
  using States = MaskStates<FixedLengths, Rule, TermsOf<2, true>, kBlockM, kGroupKeys, Window,
                            false, 32>;
  using Lists = MakeKeyLists<FixedLengths, TextSource, kBlockM, 1, kGroupKeys, Window, 256,
                             kWarpgroups>;
  using Step = MakeListsAndQueue<
      Lists, MakeTileQueue<FixedLengths, ListWalk<1>, kBlockM, kGroupKeys, 1, 256>>;
  std::vector<u32> states(kTiles * kGroups, kUnwritten), parts(kTiles * kWarpgroups + 1);
  std::vector<KeyGroup> groups(kTiles * kGroups);
  std::vector<int> counts(kTiles, -1);
  SharedMemory work;
  Params params{};
  params.fwd.batch = 1;
  params.fwd.num_heads_q = params.fwd.num_heads_kv = 1;
  params.fwd.seqlen_q = kQueries;
  params.fwd.seqlen_kv = kKeys;
  params.fwd.window_left = params.fwd.window_right = kOpenWindow;
  params.lengths.work = &work.queue;
  params.lengths.most_tiles = kTiles;
  params.lists = {.groups = groups.data(),
                  .counts = counts.data(),
                  .states = states.data(),
                  .bits = nullptr,
                  .capacity = kGroups,
                  .m_blocks = kTiles,
                  .heads = 1,
                  .batch = 1,
                  .unused = {},
                  .parts = parts.data()};
  const auto sees = [](int first_query, int rows, int group) {
    for (int q = first_query; q < std::min(first_query + rows, kQueries); ++q)
      for (int k = group * kGroupKeys; k < std::min((group + 1) * kGroupKeys, kKeys); ++k)
        if (Text::sees(q, k)) return true;
    return false;
  };
  // Twice: nothing may be left of a run before.
  for (int run = 0; run < 2; ++run) {
    test::run_on_host(kTiles, States::kThreads, [&] { States::run(params); });
    test::run_on_host(kTiles, Lists::kThreads, [&] { Step::run(params); });
    ASSERT_EQ(work.queue.tiles, kTiles);
    std::vector<bool> there(kTiles, false);
    int before = kGroups;
    for (int i = 0; i < kTiles; ++i) {
      const int m_block = work.tiles[i].m_block;
      const auto m = static_cast<std::size_t>(m_block);
      ASSERT_LT(m, there.size());
      EXPECT_FALSE(there[m]) << m;
      there[m] = true;
      EXPECT_LE(counts[m], before) << "the longest lists come first";
      before = counts[m];
      std::vector<int> expected;
      for (int group = 0; group < kGroups; ++group)
        if (sees(m_block * kBlockM, kBlockM, group)) expected.push_back(group);
      ASSERT_EQ(counts[m], static_cast<int>(expected.size())) << m;
      for (std::size_t at = 0; at < expected.size(); ++at)
        EXPECT_EQ(groups[m * kGroups + at].number & ~KeyGroup::kEdge,
                  static_cast<u32>(expected[at]));
      for (int w = 0; w < kWarpgroups; ++w) {
        const WalkPart part = WalkPart::of(parts[m * kWarpgroups + static_cast<std::size_t>(w)],
                                           counts[m]);
        const auto seen = [&](int place) {  // the last tile comes first
          return sees(m_block * kBlockM + w * 64, 64,
                      expected.at(expected.size() - 1 - static_cast<std::size_t>(place)));
        };
        for (int place = 0; place < counts[m]; ++place)
          EXPECT_TRUE(!seen(place) || (place >= part.before && place < part.before + part.count));
        if (part.count == 0) continue;
        EXPECT_TRUE(seen(part.before) && seen(part.before + part.count - 1)) << m << " " << w;
      }
    }
  }
}

TEST_F(MaskStatesOfTexts, BecomeListsAndTheOrderOfTheirTiles) {
  expect_lists_and_their_order<16, 0>();
  expect_lists_and_their_order<128, 2>();
}

TEST(WalkParts, AreAllOfAListThatIsTooLongForAWord) {
  for (const auto& [before, count] : {std::pair(0, 0), {3, 0}, {0, 7}, {3, 70}, {0xfffe, 0}}) {
    const WalkPart part = WalkPart::of(WalkPart{before, count}.word(), 100000);
    EXPECT_EQ(std::pair(part.before, part.count), std::pair(before, count));
  }
  for (const auto& [before, count] : {std::pair(0xffff, 0), {1, 0xfffe}, {0, 99999}}) {
    const WalkPart part = WalkPart::of(WalkPart{before, count}.word(), 100000);
    EXPECT_EQ(std::pair(part.before, part.count), std::pair(0, 100000));
  }
}

/// Verdicts of joined terms are never more than those of their pairs.
TEST(TermVerdicts, JoinAsPairsDo) {
  const TermVerdicts none{1, 0}, all{0, 1}, some = TermVerdicts::unknown();
  const auto is = [](const TermVerdicts& verdicts, const TermVerdicts& expected) {
    return verdicts.none == expected.none && verdicts.all == expected.all;
  };
  for (const TermVerdicts& x : {none, all, some}) {
    EXPECT_TRUE(is(both(x, none), none) && is(both(none, x), none));
    EXPECT_TRUE(is(both(x, all), x) && is(both(all, x), x));
    EXPECT_TRUE(is(either(x, all), all) && is(either(all, x), all));
    EXPECT_TRUE(is(either(x, none), x) && is(either(none, x), x));
    EXPECT_TRUE(is(opposite(opposite(x)), x));
    EXPECT_TRUE(is(both(x, some), is(x, none) ? none : some));
    EXPECT_TRUE(is(either(x, some), is(x, all) ? all : some));
  }
  EXPECT_TRUE(is(opposite(none), all) && is(opposite(some), some));
}

template <class Q, class K>
std::pair<bool, bool> verdict(TermRelation relation, Q q_low, Q q_high, K k_low, K k_high) {
  const TermVerdict found = verdict_of(relation, TermRange<Q>{q_low, q_high, true},
                                       TermRange<K>{k_low, k_high, true});
  return {found.none, found.all};
}

TEST(TermVerdicts, HoldForAllAndForNoneOfTheNumbersInTheirRanges) {
  const auto compare = [](TermRelation relation, int a, int b) {
    switch (relation) {
      case TermRelation::kEqual:
        return a == b;
      case TermRelation::kUnequal:
        return a != b;
      case TermRelation::kBelow:
        return a < b;
      case TermRelation::kAtMost:
        return a <= b;
      case TermRelation::kAbove:
        return a > b;
      case TermRelation::kAtLeast:
        break;
    }
    return a >= b;
  };
  for (int r = 0; r < 6; ++r)
    for (int q_low = -2; q_low <= 2; ++q_low)
      for (int q_high = q_low; q_high <= 2; ++q_high)
        for (int k_low = -2; k_low <= 2; ++k_low)
          for (int k_high = k_low; k_high <= 2; ++k_high) {
            const auto relation = static_cast<TermRelation>(r);
            bool none = true, all = true;
            for (int q = q_low; q <= q_high; ++q)
              for (int k = k_low; k <= k_high; ++k) {
                none &= !compare(relation, q, k);
                all &= compare(relation, q, k);
              }
            const std::pair expected{none, all};
            EXPECT_EQ(verdict(relation, q_low, q_high, k_low, k_high), expected) << r;
            EXPECT_EQ(verdict(relation, float(q_low), float(q_high), k_low, k_high), expected) << r;
          }
}

TEST(TermVerdicts, TakeZerosOfBothSignsForEqual) {
  EXPECT_EQ(verdict(TermRelation::kEqual, -0.0f, 0.0f, 0.0f, 0.0f), std::pair(false, true));
  EXPECT_EQ(from_ordered_int<float>(ordered_int(-3.5f)), -3.5f);
  EXPECT_LT(ordered_int(-3.5f), ordered_int(-1.0f));
  EXPECT_LT(ordered_int(-1.0f), ordered_int(2.0f));
}

}  // namespace
}  // namespace attnforge
