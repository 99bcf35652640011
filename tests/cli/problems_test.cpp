#include "cli/options/problems.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "attnforge/error.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;

template <class Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Problems, QuotedOrNotIsTheSame) {
  const Problem expected = parse_problem("fwd fp16 seqlen=1024 head_dim=64 causal");
  EXPECT_EQ(problems_from_words({"fwd", "fp16", "seqlen=1024", "head_dim=64", "causal"}),
            std::vector{expected});
  EXPECT_EQ(problems_from_words({"fwd fp16 seqlen=1024 head_dim=64 causal"}),
            std::vector{expected});
  EXPECT_EQ(problems_from_words({"fwd fp16  seqlen=1024 ", "head_dim=64", "causal"}),
            std::vector{expected});
}

TEST(Problems, CodeNeedsTheQuotesOfTheShellOnly) {
  const Problem expected = parse_problem(
      R"(fwd bf16 args="int a, int b" score="s * 2" mask="k <= q")");
  const auto read = [](const std::vector<std::string>& words) {
    return problems_from_words(words).front();
  };
  EXPECT_EQ(read({"fwd", "bf16", "args=int a, int b", "score=s * 2", "mask=k <= q"}), expected);
  EXPECT_EQ(read({"fwd", "bf16", "args=\"int a, int b\"", "score=\"s * 2\"", "mask=\"k <= q\""}),
            expected);
  EXPECT_EQ(read({R"(fwd bf16 args="int a, int b" score="s * 2" mask="k <= q")"}), expected);
}

TEST(Problems, EachOperationBeginsAProblem) {
  const std::vector<Problem> problems = problems_from_words(
      {"fwd seqlen=16", "fwd", "seqlen=32", "causal", "fwd seqlen=64"});
  ASSERT_EQ(problems.size(), 3u);
  EXPECT_EQ(problems[1], parse_problem("fwd seqlen=32 causal"));
  EXPECT_EQ(problems[2].seqlen_kv, 64);
}

TEST(Problems, ABadWordIsNamed) {
  EXPECT_THAT(error_of([] {
                problems_from_words({"fwd", "headdim=64"});
              }),
              HasSubstr("headdim=64"));
  EXPECT_THAT(error_of([] { problems_from_words({"forward", "bf16"}); }), HasSubstr("\"forward\""));
}

TEST(ProblemFile, CommentsEmptyLinesAndWindowsLineEndings) {
  const std::vector<Problem> problems = problems_from_text(
      "# prefill\r\n\r\nfwd seqlen=16 # short\r\n   \t\nfwd seqlen=32", "list.txt");
  ASSERT_EQ(problems.size(), 2u);
  EXPECT_EQ(problems[0].seqlen_q, 16);
  EXPECT_EQ(problems[1].seqlen_q, 32);
  EXPECT_TRUE(problems_from_text("# nothing\n", "list.txt").empty());
}

TEST(ProblemFile, ABadLineIsNamedByFileAndNumber) {
  const std::string error = error_of(
      [] { problems_from_text("fwd seqlen=16\n\nfwd seqlen=x\n", "list.txt"); });
  EXPECT_THAT(error, HasSubstr("list.txt:3: "));
  EXPECT_THAT(error, HasSubstr("seqlen=x"));
}

TEST(ReadProblems, WordsOrAFileButNotBothAndNotNone) {
  const TemporaryFolder folder;
  const std::string path = folder.write("list.txt", "fwd seqlen=16\n");
  EXPECT_EQ(read_problems({}, path, "tune").size(), 1u);
  EXPECT_EQ(read_problems({"fwd seqlen=16"}, "", "tune").size(), 1u);
  EXPECT_THAT(error_of([&] { read_problems({"fwd"}, path, "tune"); }), HasSubstr("both"));
  EXPECT_THAT(error_of([&] { read_problems({}, "", "tune"); }), HasSubstr("attnforge tune fwd"));
  EXPECT_THAT(error_of([&] { read_problems({}, folder.write("empty.txt", ""), "tune"); }),
              HasSubstr("holds no problem"));
  EXPECT_THAT(error_of([&] { read_problems({}, folder.file("none.txt"), "tune"); }),
              HasSubstr("none.txt"));
  EXPECT_THAT(error_of([&] { read_problems({}, folder.file(""), "tune"); }),
              HasSubstr("cannot read"));
}

TEST(ProblemsOfShard, AreAllProblemsOnceTogether) {
  const std::vector<Problem> all = problems_from_words(
      {"fwd seqlen=16,32,48,64,80", "fwd fp16 seqlen=16"});
  ASSERT_EQ(all.size(), 6u);
  EXPECT_EQ(problems_of_shard(all, ""), all);
  EXPECT_EQ(problems_of_shard(all, "0/1"), all);
  EXPECT_EQ(problems_of_shard(all, "1/4"), (std::vector<Problem>{all[1], all[5]}));
  EXPECT_TRUE(problems_of_shard(all, "7/8").empty());
  for (const std::size_t count : {2, 3, 8}) {
    std::size_t seen = 0;
    for (std::size_t i = 0; i < count; ++i)
      seen += problems_of_shard(all, std::to_string(i) + "/" + std::to_string(count)).size();
    EXPECT_EQ(seen, all.size());
  }
  for (const char* const wrong : {"1", "4/4", "/4", "1/", "1/0", "-1/4", "1/4x", "x"})
    EXPECT_THAT(error_of([&] { problems_of_shard(all, wrong); }), HasSubstr("I/N")) << wrong;
}

TEST(ReadProblem, TakesExactlyOne) {
  EXPECT_EQ(read_problem({"fwd", "seqlen=16"}, "inspect"), parse_problem("fwd seqlen=16"));
  EXPECT_THAT(error_of([] { read_problem({"fwd", "fwd"}, "inspect"); }), HasSubstr("2 problems"));
  EXPECT_THAT(error_of([] { read_problem({}, "inspect"); }), HasSubstr("attnforge inspect fwd"));
}

}  // namespace
}  // namespace attnforge::cli
