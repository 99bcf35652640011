// sweep_test.cpp - words with several values become all combinations.
#include "cli/options/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(std::string_view text) {
  try {
    expand_sweep(text);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(Sweep, TextWithoutCommasIsItself) {
  EXPECT_THAT(expand_sweep("fwd bf16 num_heads=32:8 seqlen=16"),
              ElementsAre("fwd bf16 num_heads=32:8 seqlen=16"));
}

TEST(Sweep, LastWordIsFastest) {
  EXPECT_THAT(expand_sweep("fwd bf16,fp16 seqlen=1,2 head_dim=64"),
              ElementsAre("fwd bf16 seqlen=1 head_dim=64", "fwd bf16 seqlen=2 head_dim=64",
                          "fwd fp16 seqlen=1 head_dim=64", "fwd fp16 seqlen=2 head_dim=64"));
}

TEST(Sweep, CommasAndBlanksOfCodeAreItsOwn) {
  const std::string code = R"(score="min(s, 2.0f) * \" 1" mask="k <= q")";
  EXPECT_EQ(expand_sweep("fwd " + code + " causal,full"),
            (std::vector<std::string>{"fwd " + code + " causal", "fwd " + code}));
}

TEST(Sweep, FullIsNoMask) {
  EXPECT_THAT(expand_sweep("fwd causal,full lse"), ElementsAre("fwd causal lse", "fwd lse"));
}

TEST(Sweep, EmptyValuesAreErrorsThatNameTheWord) {
  EXPECT_THAT(error_of("fwd seqlen=1,,2"), HasSubstr("seqlen=1,,2"));
  EXPECT_THAT(error_of("fwd seqlen=1,"), HasSubstr("empty value"));
  EXPECT_THAT(error_of("fwd ,causal"), HasSubstr("empty value"));
}

TEST(Sweep, TooManyProblemsAreAnError) {
  std::string values = "1";
  for (int i = 2; i <= 101; ++i) values += "," + std::to_string(i);
  EXPECT_THAT(error_of("fwd seqlen=" + values + " batch=" + values), HasSubstr("more than 10000"));
}

TEST(Sweep, WorksInWordsAndInFiles) {
  EXPECT_EQ(problems_from_words({"fwd", "seqlen=16,32", "head_dim=64,128", "causal,full"}).size(),
            8u);
  const std::vector<Problem> from_file = problems_from_text(
      "fwd seqlen=16,32 # both\nfwd seqlen=8\n", "list");
  ASSERT_EQ(from_file.size(), 3u);
  EXPECT_EQ(from_file[1].seqlen_q, 32);
}

TEST(Sweep, BadValueOfALineNamesTheLine) {
  try {
    problems_from_text("\nfwd seqlen=16,x\n", "list");
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("list:2: "));
  }
}

}  // namespace
}  // namespace attnforge::cli
