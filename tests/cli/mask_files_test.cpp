// mask_files_test.cpp - block masks from files: what each kind means, and what is refused.
#include "cli/parts/block_mask.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <span>

#include "attnforge/error.h"
#include "cli/files/npy.h"
#include "cli/output/mask_drawing.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;

class MaskFiles : public testing::Test {
 protected:
  template <class Value>
  std::string file(const char* name, const char* descr, const std::vector<std::int64_t>& shape,
                   const std::vector<Value>& values) {
    write_npy(folder_.file(name), descr, shape, std::as_bytes(std::span(values)));
    return folder_.file(name);
  }
  static BlockMask read(const char* problem, const std::vector<std::string>& paths) {
    return mask_from_files(parse_problem(problem), paths);
  }
  static std::string refusal(const char* problem, const std::vector<std::string>& paths) {
    try {
      read(problem, paths);
    } catch (const Error& error) {
      return error.what();
    }
    return "nothing was refused";
  }

  TemporaryFolder folder_;
};

TEST_F(MaskFiles, RunsAreWhatPiKAttentionWrites) {
  // Of 80 tokens in tiles of 16: for each row the first column and how many.
  const std::string runs = file<int>("runs.npy", "<i4", {5, 2}, {0, 2, 1, 2, 3, 2, 0, 0, 0, 5});
  const BlockMask mask = read("fwd num_heads=8 seqlen=80", {runs});
  EXPECT_EQ(mask.block_q, 16);
  EXPECT_EQ(mask.block_kv, 16);
  EXPECT_EQ(to_text(mask), "##   \n ##  \n   ##\n     \n#####\n");
  EXPECT_EQ(read("fwd seqlen=80 blocks=16:32",
                 {file<int>("narrow.npy", "<i4", {5, 2}, {0, 2, 1, 2, 1, 2, 0, 0, 0, 3})})
                .block_kv,
            32);
  EXPECT_THAT(
      refusal("fwd seqlen=160 blocks=16", {runs}),
      HasSubstr("runs.npy: 5 rows of blocks are not those of seqlen_q=160 in blocks of 16"));
  EXPECT_THAT(refusal("fwd seqlen=10", {file<int>("one.npy", "<i4", {1, 2}, {0, 1})}),
              HasSubstr("may be of 16 queries or of 32; say blocks=16"));
  EXPECT_THAT(refusal("fwd seqlen=80:48", {runs}),
              HasSubstr("the run of row 2 is 2 block columns"));
}

TEST_F(MaskFiles, RowsAndColumnsOfSharedMasksAndOfOneForEachHead) {
  const std::string begin = file<std::int64_t>("begin.npy", "<i8", {3}, {0, 1, 3}),
                    columns = file<std::int64_t>("columns.npy", "<i8", {3}, {1, 0, 1}),
                    partial = file<std::uint8_t>("partial.npy", "|b1", {3}, {0, 1, 0});
  const BlockMask shared = read("fwd num_heads=4 seqlen=100", {begin, columns, partial});
  EXPECT_EQ(shared.block_q, 64);
  EXPECT_EQ(to_text(shared), " #\n+#\n");
  const BlockMask each = read("fwd num_heads=4:2 seqlen=64", {begin, columns});
  EXPECT_EQ(each.heads, 1) << "the plainest: 32 tokens a row";
  EXPECT_EQ(each.block_q, 32);
  EXPECT_EQ(read("fwd num_heads=4:2 seqlen=64:128 blocks=64 mask_heads=2", {begin, columns}).heads,
            2);
  EXPECT_EQ(read("fwd num_heads=4:2 seqlen=64:128 blocks=64", {begin, columns}).heads, 2);
  EXPECT_THAT(refusal("fwd seqlen=100", {begin, columns, columns}),
              HasSubstr("columns.npy: its <i8 [3] must be bool or uint8"));
  EXPECT_THAT(refusal("fwd seqlen=100:60", {begin, columns}),
              HasSubstr("indices[0] of row 0 is block column 1; there are 1"));
}

TEST_F(MaskFiles, BytesAreBlocksOrPairs) {
  const std::string blocks = file<std::uint8_t>("blocks.npy", "|b1", {2, 3}, {1, 0, 1, 0, 1, 0});
  const BlockMask mask = read("fwd seqlen=100:150", {blocks});
  EXPECT_EQ(mask.block_q, 64);
  EXPECT_EQ(to_text(mask), "# #\n # \n");
  std::vector<std::uint8_t> seen(100 * 150, 0);
  seen[3] = 1;
  const std::string pairs = file<std::uint8_t>("pairs.npy", "|b1", {100, 150}, seen);
  EXPECT_EQ(to_text(read("fwd seqlen=100:150", {pairs})), "+  \n   \n");
  EXPECT_EQ(to_text(read("fwd seqlen=100:150 blocks=128", {pairs})), "+ \n");
  EXPECT_THAT(
      refusal("fwd seqlen=100:150", {file<float>("floats.npy", "<f4", {2, 3}, {1, 0, 1, 0, 1, 0})}),
      HasSubstr("floats.npy: its <f4 [2, 3] is not a mask"));
}

TEST_F(MaskFiles, ARandomMaskHasItsBlocksOrThoseOfTheProblem) {
  const auto random = [](const char* problem, double density) {
    return mask_of_density(parse_problem(problem), density, 3);
  };
  EXPECT_EQ(random("fwd seqlen=1000", 0.5).block_q, 128);
  const BlockMask mask = random("fwd num_heads=2 seqlen=1000 blocks=16:32 mask_heads=2 mask_bits",
                                0.5);
  EXPECT_EQ(mask.heads, 2);
  EXPECT_FALSE(mask.bits.empty());
}

TEST_F(MaskFiles, ADrawingSaysWhatIsPresentAndWhatTilesMerge) {
  const auto drawn = [](const char* problem, double density, int block_m) {
    const Drawing drawing{"Mask", mask_of_density(parse_problem(problem), density, 3), false, ""};
    return drawing_text(drawing, {.block_m = block_m});
  };
  EXPECT_EQ(counts_text(mask_of_density(parse_problem("fwd seqlen=64 blocks=16"), 1, 3)),
            "100% of 16 blocks of 16 x 16 are present: 16 full, 0 partial, 0 empty");
  EXPECT_THAT(drawn("fwd seqlen=64 blocks=16", 0, 32),
              HasSubstr("\n  merged to tiles of 32 queries: 2.00 blocks for each of them\n"));
  const std::string small = drawn("fwd seqlen=32 blocks=16", 0, 16);
  EXPECT_THAT(small, testing::StartsWith("\nMask: 50% of 4 blocks"));
  EXPECT_THAT(small, testing::EndsWith("empty\n  |# |\n  | #|\n")) << "nothing is merged";
  EXPECT_EQ(drawing_text({}, {}), "");
  EXPECT_EQ(drawing_text({"Mask", std::nullopt, false, "a loop"}, {}),
            "\nMask: not drawn, for a loop\n");
}

}  // namespace
}  // namespace attnforge::cli
