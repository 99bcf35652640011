// mask_windows_test.cpp - terms of a mask's text that are windows: found, exactly as wide as the
// text says, and nothing else taken for one.
#include "generator/user_code/mask_windows.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <string>

#include "attnforge/problem.h"

namespace attnforge {
namespace {

Problem with_mask(std::string text, std::int64_t seqlen_q, std::int64_t seqlen_kv) {
  Problem p;
  p.seqlen_q = seqlen_q;
  p.seqlen_kv = seqlen_kv;
  p.mask = std::move(text);
  return p;
}

struct Pair {
  std::int64_t q, k, seqlen_q, seqlen_kv;
};
struct Text {
  std::string text;
  std::function<bool(const Pair&)> sees;
};

const Text kWindows[] = {
    {"k <= q", [](const Pair& p) { return p.k <= p.q; }},
    {"q >= k", [](const Pair& p) { return p.k <= p.q; }},
    {"k < q", [](const Pair& p) { return p.k < p.q; }},
    {"q-k<3", [](const Pair& p) { return p.q - p.k < 3; }},
    {"k > q - 3", [](const Pair& p) { return p.k > p.q - 3; }},
    {"k - 2 <= q + (4 - 1)", [](const Pair& p) { return p.k - 2 <= p.q + 3; }},
    {"-k >= -(q + 1)", [](const Pair& p) { return p.k <= p.q + 1; }},
    {"k == q", [](const Pair& p) { return p.k == p.q; }},
    {"abs(k - q) <= 2", [](const Pair& p) { return std::abs(p.k - p.q) <= 2; }},
    {"abs(q - k + 1) < 3", [](const Pair& p) { return std::abs(p.q - p.k + 1) < 3; }},
    {"k <= q && q - k < 4", [](const Pair& p) { return p.k <= p.q && p.q - p.k < 4; }},
    {"((k <= q) && (\n q - k < 4))", [](const Pair& p) { return p.k <= p.q && p.q - p.k < 4; }},
    {"k <= q && k <= q - 2 && k <= q + 9", [](const Pair& p) { return p.k <= p.q - 2; }},
    {"k <= q + seqlen_kv - seqlen_q",
     [](const Pair& p) { return p.k <= p.q + p.seqlen_kv - p.seqlen_q; }},
    {"seqlen_q + k < q + seqlen_kv + seqlen_kv - 5",
     [](const Pair& p) { return p.seqlen_q + p.k < p.q + 2 * p.seqlen_kv - 5; }},
};

TEST(MaskWindows, SeeThePairsThatTheirTextSees) {
  for (const Text& mask : kWindows) {
    for (const auto& [rows, keys] : {std::pair{7, 7}, std::pair{5, 9}, std::pair{9, 5}}) {
      const Problem p = with_mask(mask.text, rows, keys);
      EXPECT_EQ(mask_code(p), "") << mask.text;
      const KeyBounds bounds = key_bounds(p);
      for (std::int64_t q = 0; q < rows; ++q) {
        for (std::int64_t k = 0; k < keys; ++k) {
          const std::int64_t position = q + keys - rows;
          const bool seen = (!bounds.right || k <= position + *bounds.right) &&
                            (!bounds.left || k >= position - *bounds.left);
          EXPECT_EQ(seen, mask.sees({q, k, rows, keys}))
              << mask.text << " of query " << q << " and key " << k << " in " << rows << ':'
              << keys;
        }
      }
    }
  }
}

TEST(MaskWindows, AreNotTakenFromTextsThatMayMeanSomethingElse) {
  for (const char* text : {"k <= q || k < 4",
                           "(k <= q || k < 4)",
                           "k <= q ? k > 2 : k > 3",
                           "k <= 4",
                           "q <= 4",
                           "2 * k <= q",
                           "k + q <= 9",
                           "k <= q * 1",
                           "k <= q + 1.0f",
                           "k <= q + width",
                           "!(k <= q)",
                           "k <= q, k > 3",
                           "(q = 3) && k <= q",
                           "(q += 1) && k <= q",
                           "(q <<= 1) && k <= q",
                           "q++ && k <= q",
                           "k <= q != 0",
                           "k <= q <= 1",
                           "k << 1 <= q",
                           "k <= q & k",
                           "k != q",
                           "k <= q + 0x10",
                           "k <= q + 010",
                           "k <= q or k > 3",
                           "k <= q and k > 3",
                           "abs(k - q) >= 2",
                           "abs(k - q) <= q",
                           "abs(k - q) + 1 <= 2",
                           "k <= q + 99999999999",
                           "k - q",
                           "[](int k) { return k <= 2; }(q)",
                           "k <= q ^ 1",
                           "at[k <= q]",
                           "f(k <= q)"}) {
    const Problem p = with_mask(text, 8, 8);
    const KeyBounds bounds = key_bounds(p);
    EXPECT_FALSE(bounds.left || bounds.right) << text;
    EXPECT_EQ(mask_code(p), text);
  }
}

TEST(MaskWindows, LeaveTheOtherTermsWhereTheyWere) {
  const Problem p = with_mask("document[q] == document[k] &&\n (k <= q) && odd[k]", 8, 8);
  EXPECT_EQ(key_bounds(p).right, 0);
  EXPECT_EQ(mask_code(p), "document[q] == document[k] &&\n (1     ) && odd[k]");
}

TEST(MaskWindows, NarrowTheProblemsOwn) {
  Problem p = with_mask("q - k <= 5 && k <= q + 2", 8, 8);
  p.window_left = 9;
  p.causal = true;
  EXPECT_EQ(key_bounds(p).left, 5);
  EXPECT_EQ(key_bounds(p).right, 0);
}

TEST(MaskWindows, OfLengthsThatOnlyTheGpuKnowsAreRelativeToThePosition) {
  Problem p = with_mask("k <= q", 8, 8);
  p.lengths = Lengths::kPacked;
  EXPECT_FALSE(key_bounds(p).right);
  EXPECT_EQ(mask_code(p), "k <= q");
  p.mask = "k <= q + seqlen_kv - seqlen_q";
  EXPECT_EQ(key_bounds(p).right, 0);
  EXPECT_EQ(mask_code(p), "");
}

TEST(MaskWindows, AreNoneBesideABlockMaskWhoseFullBlocksTheTextDoesNotConcern) {
  Problem p = with_mask("k <= q", 64, 64);
  p.mask_block_q = p.mask_block_kv = 16;
  EXPECT_FALSE(key_bounds(p).right);
  EXPECT_EQ(mask_code(p), "k <= q");
}

TEST(MaskWindows, OfDeepBracketsTakeNoLongTime) {
  const std::string deep(8000, '(');
  const Problem p = with_mask(deep + "k <= q" + std::string(8000, ')'), 8, 8);
  EXPECT_FALSE(key_bounds(p).right);
}

}  // namespace
}  // namespace attnforge
