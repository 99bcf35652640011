// mask_states_test.cpp - the step that asks a mask's text, on threads of the host: which groups of
// keys rows see, and the bits of those that they see some of, as of every pair by itself.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/pieces/fixed_lengths.cuh"
#include "templates/pieces/window_mask.cuh"
#include "templates/parts/user_code/step_states.cuh"
// clang-format on

namespace attnforge {
namespace {

struct Params {
  FwdParams fwd;
  KeyListParams lists;
};

/// document_q[q] == document_kv[k], and whether q + k is no multiple of `rare`.
struct Text {
  static inline std::vector<int> of_query{}, of_key{};
  static inline std::vector<float> weight_q{}, weight_kv{};
  static inline int rare = 0;

  static bool sees(int query, int key) {
    EXPECT_TRUE(query >= 0 && key >= 0 && query < static_cast<int>(of_query.size()) &&
                key < static_cast<int>(of_key.size()))
        << "the text is asked about pairs that are there";
    return of_query[static_cast<std::size_t>(query)] == of_key[static_cast<std::size_t>(key)] &&
           weight_q[static_cast<std::size_t>(query)] <= weight_kv[static_cast<std::size_t>(key)] &&
           (rare == 0 || (query + key) % rare != 0);
  }
};
struct Rule {
  template <class Params, class Lengths>
  static auto of_row(const Params&, const Lengths&, int, int, int query, int key) {
    return [=](int i) { return Text::sees(query, key + i); };
  }
};
template <int kTerms, bool kAllTerms>
struct TermsOf {
  static constexpr int kCount = kTerms;
  static constexpr bool kAll = kAllTerms;
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

constexpr int kQueries = 150, kKeys = 700, kUnwritten = 0x5a5a5a5a;

/// Runs the step and compares what it wrote with the text.
template <class Terms, int kBlockM, int kGroupKeys, bool kLeft, bool kBits>
void expect_what_the_text_says(int window_left, int window_right) {
  using Kernel = MaskStates<FixedLengths, Rule, Terms, kBlockM, kGroupKeys, WindowMask<kLeft>,
                            kBits>;
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
                  .unused = {}};
  const int blocks = (kGroups + Kernel::kWarps - 1) / Kernel::kWarps;
  test::run_on_host(static_cast<unsigned>(lists * blocks), Kernel::kThreads,
                    [&] { Kernel::run(params); });
  const FixedLengths lengths(params, 0);
  for (int list = 0; list < lists; ++list)
    for (int group = 0; group < kGroups; ++group)
      for (int f = 0; f < kFragments; ++f) {
        const std::size_t at = static_cast<std::size_t>(list * kGroups + group);
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
  }
};

TEST_F(MaskStatesOfTexts, AreThoseOfEveryPairWhereTermsTellOfMany) {
  expect_what_the_text_says<TermsOf<2, true>, 128, 96, false, true>(kOpenWindow, kOpenWindow);
  expect_what_the_text_says<TermsOf<2, true>, 64, 16, true, true>(120, 30);
}

TEST_F(MaskStatesOfTexts, AreThoseOfEveryPairWhereNoTermDoes) {
  expect_what_the_text_says<TermsOf<0, true>, 64, 48, false, true>(kOpenWindow, 0);
  expect_what_the_text_says<TermsOf<0, true>, 128, 128, false, false>(kOpenWindow, 0);
}

TEST_F(MaskStatesOfTexts, AskPairsWhereOtherTermsMayHideSome) {
  Text::rare = 7;
  expect_what_the_text_says<TermsOf<2, false>, 128, 64, false, true>(kOpenWindow, kOpenWindow);
  expect_what_the_text_says<TermsOf<1, false>, 32, 112, true, false>(300, 0);
}

TEST_F(MaskStatesOfTexts, AskPairsWhereValuesAreNotNumbers) {
  for (std::size_t i = 0; i < Text::weight_kv.size(); i += 50)
    Text::weight_kv[i] = std::numeric_limits<float>::quiet_NaN();
  for (std::size_t i = 3; i < Text::weight_q.size(); i += 60)
    Text::weight_q[i] = std::numeric_limits<float>::quiet_NaN();
  expect_what_the_text_says<TermsOf<2, true>, 128, 96, false, true>(kOpenWindow, kOpenWindow);
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
