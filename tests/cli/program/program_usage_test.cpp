// program_usage_test.cpp - help, and what is said of a call that it does not understand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "attnforge/problem_words.h"
#include "attnforge/version.h"
#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::vector<std::string> kVerbs = {"tune",  "run",    "bench",  "inspect",    "list",
                                         "cache", "doctor", "report", "completion", "help"};

// ---- help, version, usage ----

TEST_F(Program, HelpListsVerbsExitCodesAndExamples) {
  const Outcome outcome = run({"--help"});
  EXPECT_EQ(outcome.exit_code, 0);
  for (const std::string& verb : kVerbs) EXPECT_THAT(outcome.out, HasSubstr("\n  " + verb + " "));
  EXPECT_THAT(outcome.out, HasSubstr("Exit codes: 0 done"));
  EXPECT_THAT(outcome.out, HasSubstr("Examples:\n  attnforge tune"));
  EXPECT_EQ(outcome.err, "");
}

TEST_F(Program, EveryVerbHasHelpWithExamples) {
  for (const std::string& verb : kVerbs) {
    const Outcome outcome = run({verb, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << verb;
    EXPECT_THAT(outcome.out, HasSubstr("Examples:\n  attnforge " + verb)) << verb;
    EXPECT_EQ(outcome.err, "") << verb;
    const std::string options = outcome.out.substr(0, outcome.out.find("\nExamples:"));
    for (std::size_t end, at = 0; at < options.size(); at = end + 1) {
      end = std::min(options.find('\n', at), options.size());
      EXPECT_LE(end - at, 80u) << options.substr(at, end - at);
    }
  }
  for (const char* action : {"ls", "show", "export", "import", "stats", "clear"}) {
    const Outcome outcome = run({"cache", action, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << action;
    EXPECT_THAT(outcome.out, HasSubstr("--cache")) << action;
  }
}

TEST_F(Program, WithoutWordsItPrintsItsHelpAndFails) {
  const Outcome outcome = run({});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_EQ(outcome.err, run({"--help"}).out);
  EXPECT_EQ(outcome.out, "");
}

/// All words with one blank between them.
std::string one_line(const std::string& text) {
  std::string line;
  for (const char c : text) {
    const bool blank = c == ' ' || c == '\n';
    if (!blank || (!line.empty() && line.back() != ' ')) line += blank ? ' ' : c;
  }
  return line;
}

TEST_F(Program, HelpExplainsTopics) {
  const Outcome problem = run({"help", "problem"});
  EXPECT_EQ(problem.exit_code, 0);
  for (const ProblemWord& word : problem_words()) {
    EXPECT_THAT(problem.out, HasSubstr("\n  " + std::string(word.form)));
    EXPECT_THAT(one_line(problem.out), HasSubstr(std::string(word.meaning)));
  }
  EXPECT_THAT(run({"help", "environment"}).out, HasSubstr("ATTNFORGE_LOG=warning"));
  EXPECT_EQ(run({"help", "tune"}).out, run({"tune", "--help"}).out);
  EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
  const Outcome unknown = run({"help", "nothing"});
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("\"nothing\""));
}

TEST_F(Program, DoctorIsOneScreen) {
  const Outcome outcome = run({"doctor"});
  EXPECT_LE(std::count(outcome.out.begin(), outcome.out.end(), '\n'), 24) << outcome.out;
  EXPECT_THAT(outcome.out, Not(HasSubstr("\\n"))) << "lines of a message are lines";
}

TEST_F(Program, Version) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, std::string("attnforge ") + kVersion + "\n");
}

TEST_F(Program, UsageErrorsAreOneLineWithAdvice) {
  const std::vector<std::vector<std::string>> wrong = {
      {"tunes"},
      {"tune", "--rigor", "lazy", "fwd"},
      {"tune", "--time-limit", "-1", "fwd"},
      {"tune", "--no-such-option"},
      {"list", "nonsense"},
      {"cache"},
      {"bench", "--csv", "--json", "fwd"},
      {"inspect", "--arch", "sm_86", "--gpu", "0", "fwd"},
  };
  for (const auto& arguments : wrong) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, StartsWith("attnforge: "));
    EXPECT_THAT(outcome.err, HasSubstr("--help"));
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

TEST_F(Program, AVerbsErrorPointsToItsOwnHelp) {
  EXPECT_THAT(run({"tune", "--no-such-option"}).err, HasSubstr("attnforge tune --help"));
}

TEST_F(Program, AMisspeltVerbOrOptionIsNamedWithWhatIsMeant) {
  const struct {
    std::vector<std::string> arguments;
    const char* said;
  } wrong[] = {
      {{"tun"}, "unknown verb \"tun\"; did you mean \"tune\"? See attnforge --help"},
      {{"install"}, "unknown verb \"install\"; see attnforge --help"},
      {{"cache", "migrate"}, "unknown verb \"migrate\"; see attnforge cache --help"},
      {{"cache", "stat"},
       "unknown verb \"stat\"; did you mean \"stats\"? See attnforge cache --help"},
      {{"inspect", "--sectoin", "all", "fwd"},
       "unknown option \"--sectoin\"; did you mean \"--section\"? See attnforge inspect --help"},
      {{"inspect", "--architecture=sm_86", "fwd"}, "unknown option \"--architecture\""},
      {{"--verison"}, "unknown option \"--verison\"; did you mean \"--version\"?"},
      {{"help", "inspec"}, "help has no topic \"inspec\" (did you mean \"inspect\"?)"},
      {{"tune", "--rigor", "fast", "fwd"}, "\"fast\" is not one of quick, full, exhaustive"},
      {{"list", "gpus"}, "section: \"gpus\" is not one of families, devices, archs, all"},
  };
  for (const auto& each : wrong) {
    const Outcome outcome = run(each.arguments);
    EXPECT_EQ(outcome.exit_code, 2) << each.said;
    EXPECT_THAT(outcome.err, HasSubstr(each.said));
  }
}

// ---- problems ----

TEST_F(Program, ABadWordIsNamedWithWhatIsAllowed) {
  for (const char* verb : {"tune", "bench", "inspect"}) {
    const Outcome outcome = run({verb, "fwd", "bf16", "head_dim=63"});
    EXPECT_EQ(outcome.exit_code, 2) << verb;
    EXPECT_THAT(outcome.err, HasSubstr("head_dim"));
    EXPECT_THAT(outcome.err, HasSubstr("63"));
    EXPECT_THAT(outcome.err, HasSubstr("multiple of 8"));
  }
  const Outcome outcome = run({"tune", "fwd", "headdim=64"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("did you mean \"head_dim=64\""));
}

TEST_F(Program, ABadLineOfAFileIsNamed) {
  const std::string path = folder_.write("problems.txt",
                                         "# list\nfwd seqlen=16\nfwd seqlen=1o24\n");
  for (const char* verb : {"tune", "bench"}) {
    const Outcome outcome = run({verb, "--file", path});
    EXPECT_EQ(outcome.exit_code, 2) << verb;
    EXPECT_THAT(outcome.err, HasSubstr(path + ":3: "));
    EXPECT_THAT(outcome.err, HasSubstr("seqlen=1o24"));
  }
}

TEST_F(Program, NoProblemAndNoFile) {
  for (const char* verb : {"tune", "bench", "inspect", "run"}) {
    const Outcome outcome = run({verb});
    EXPECT_EQ(outcome.exit_code, 2) << verb;
    EXPECT_THAT(outcome.err, StartsWith("attnforge: "));
  }
  EXPECT_EQ(run({"tune", "--file", folder_.file("none.txt")}).exit_code, 1);
}

TEST_F(Program, AShardWithoutProblemsSaysSo) {
  const Outcome outcome = run({"tune", "--shard", "7/8", "fwd", "fp16", "seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_THAT(outcome.err, HasSubstr("shard 7/8 has none of 1 problem"));
  const Outcome nobody = run({"tune", "--shard", "auto", "fwd", "fp16", "seqlen=64"});
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_THAT(nobody.err, HasSubstr("say --shard I/N"));
  EXPECT_THAT(
      run({"tune", "--shard", "auto", "fwd", "fp16"}, {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}}).err,
      HasSubstr("shard 1/2 has none"));
}

TEST_F(Program, AnUnsupportedProblemIsExitCode3) {
  const Outcome outcome = run(
      {"inspect", "--arch", "sm_86", "--family", "fwd_mma_sm80", "fwd", "fp32", "seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("fwd_mma_sm80"));
}

TEST_F(Program, AProblemMayFollowAnOptionWithAList) {
  EXPECT_EQ(run({"tune", "--arch", "sm_12", "fwd", "seqlen=64"}).exit_code, 2)
      << "the arch is unknown";
  EXPECT_THAT(run({"tune", "--arch", "sm_12", "fwd", "seqlen=64"}).err, HasSubstr("12"));
  EXPECT_EQ(run({"bench", "--families", "fwd_naive", "fwd", "seqlen=64"}).exit_code, 5);
}

// ---- other arguments, and the environment ----

TEST_F(Program, ABadGpuIsRefused) {
  const Outcome outcome = run({"tune", "--gpu", "first", "fwd seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("\"first\""));
}

TEST_F(Program, ABadSwitchIsAnErrorAndDoctorShowsIt) {
  const Outcome outcome = run({"inspect", "--arch", "sm_86", "--no-compile", "fwd", "seqlen=64"},
                              {{"ATTNFORGE_BLOCK_N", "many"}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ATTNFORGE_BLOCK_N=many"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_BLOCK_N", "many"}}).out,
              HasSubstr("ATTNFORGE_BLOCK_N=many"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_BLOCK_N", "32"}}).out, HasSubstr("forced block_n=32"));
}

}  // namespace
}  // namespace attnforge::cli
