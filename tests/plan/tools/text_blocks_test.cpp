// text_blocks_test.cpp - the blocks of a mask's text as the CPU finds them: those of the dense mask
// where all pairs are asked, windows exactly however large, and bounded work for the rest.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"

namespace attnforge {
namespace {

using Sees = std::function<bool(std::int64_t q, std::int64_t k)>;

BlockMask without_bits(BlockMask mask) {
  mask.bits.clear();
  mask.bit_blocks.clear();
  return mask;
}

BlockMask of_pairs(const BlockMaskShape& shape, const Sees& sees) {
  std::vector<std::uint8_t> seen;
  for (std::int64_t q = 0; q < shape.seqlen_q; ++q) {
    for (std::int64_t k = 0; k < shape.seqlen_kv; ++k) seen.push_back(sees(q, k) ? 1 : 0);
  }
  return without_bits(block_mask_from_dense(shape, seen));
}

/// A picture takes no longer than of a short text.
TEST(TextBlocks, AskALongTextOfFewerPairs) {
  Problem p = parse_problem("fwd seqlen=512 mask=\"k % 2 < q\"");
  EXPECT_FALSE(text_blocks(p, {}, 0, 0).sampled);
  for (int i = 0; i < 300; ++i) p.mask += " + tanhf(q)";
  EXPECT_TRUE(text_blocks(p, {}, 0, 0).sampled);
}

TEST(TextBlocks, AreThoseOfAllPairsWhereThereAreFew) {
  struct Case {
    std::string words;
    Sees sees;
    int block_q = 16, block_kv = 32;
  };
  const Case cases[] = {
      {"mask=\"k <= q\" blocks=16:32", [](auto q, auto k) { return k <= q; }},
      {"mask=\"k <= q && q - k < 40\" blocks=16:32",
       [](auto q, auto k) { return k <= q && q - k < 40; }},
      {"mask=\"k < q - 200 && k > q + 3\" blocks=16:32", [](auto, auto) { return false; }},
      {"mask=\"k <= q + seqlen_kv - seqlen_q || k < 50\" blocks=16:32",
       [](auto q, auto k) { return k <= q + 60 || k < 50; }},
      {"mask=\"q / 48 == k / 48\" blocks=16:32", [](auto q, auto k) { return q / 48 == k / 48; }},
      // Without blocks of its own the problem's window is drawn too.
      {"mask=\"(k - q) % 3 != 0\" causal",
       [](auto q, auto k) { return k <= q + 60 && (k - q) % 3 != 0; }, 128, 128},
      {"mask=\"(k - q) % 3 != 0\" causal blocks=16:32",
       [](auto q, auto k) { return (k - q) % 3 != 0; }},
  };
  for (const Case& c : cases) {
    const Problem problem = parse_problem("fwd seqlen=200:260 " + c.words);
    const TextBlocks found = text_blocks(problem);
    ASSERT_EQ(found.unknown, "") << c.words;
    EXPECT_FALSE(found.sampled) << c.words;
    const BlockMask wanted = of_pairs(
        {.block_q = c.block_q, .block_kv = c.block_kv, .seqlen_q = 200, .seqlen_kv = 260}, c.sees);
    EXPECT_EQ(found.mask, wanted) << c.words << "\n" << to_text(found.mask) << to_text(wanted);
  }
}

TEST(TextBlocks, OfAHeadASequenceAndArraysAreTheirs) {
  const Problem problem = parse_problem(
      "fwd batch=2 num_heads=2 seqlen=64 blocks=16 args=\"int* last[batch]\" "
      "mask=\"k <= last[batch] + 16 * head\"");
  const int last[] = {15, 47};
  const std::span<const std::byte> arrays[] = {std::as_bytes(std::span(last))};
  EXPECT_EQ(to_text(text_blocks(problem, arrays, 0, 0).mask), "#   \n#   \n#   \n#   \n");
  EXPECT_EQ(to_text(text_blocks(problem, arrays, 1, 0).mask), "##  \n##  \n##  \n##  \n");
  EXPECT_EQ(to_text(text_blocks(problem, arrays, 1, 1).mask), "####\n####\n####\n####\n");
  EXPECT_EQ(text_blocks(problem).unknown, "it reads last, whose elements are not given");
  EXPECT_THROW(text_blocks(problem, arrays, 2, 0), Error);
  EXPECT_THROW(text_blocks(parse_problem("fwd seqlen=64")), Error);
}

/// 2^32 pairs: windows are exact, the rest is asked in 2^22 of them.
TEST(TextBlocks, OfLongSequencesAreWindowsExactlyAndSamplesOfTheRest) {
  const auto found = [](const std::string& mask) {
    return text_blocks(parse_problem("fwd seqlen=65536 mask=\"" + mask + "\""));
  };
  const TextBlocks window = found("k <= q && q - k < 4096");
  EXPECT_FALSE(window.sampled);
  EXPECT_EQ(window.mask.q_blocks() * window.mask.kv_blocks(), 1 << 16);
  // 256 blocks on the diagonal, 15 full ones before each, and one where the window ends.
  const BlockCounts counts = count_blocks(window.mask);
  EXPECT_EQ(counts.full, 15 * 256 - 15 * 16 / 2);
  EXPECT_EQ(counts.partial, 256 + (256 - 16));

  const TextBlocks prefix = found("k <= q || k < 8192");
  EXPECT_TRUE(prefix.sampled);
  EXPECT_EQ(count_blocks(prefix.mask).full, 32 * 256 + (256 - 32) * (256 - 33) / 2);
  EXPECT_EQ(count_blocks(prefix.mask).partial, 256 - 32);

  const TextBlocks dilated = found("k <= q && (q - k) % 4 == 0");
  EXPECT_EQ(count_blocks(dilated.mask).full, 0);
  EXPECT_NEAR(static_cast<double>(count_blocks(dilated.mask).partial), 256 * 257 / 2.0, 64);
}

}  // namespace
}  // namespace attnforge
