// program_hostile_test.cpp - bad values, texts of strangers, closed files, input without an end:
// the program says what is wrong in one short line and ends with the code that docs/CLI.md
// promises.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <string>
#include <vector>

#include <sys/wait.h>

#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using testing::AllOf;
using testing::AnyOf;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

std::string output_of(const std::string& command) {
  std::string text;
  FILE* const pipe = popen(command.c_str(), "r");
  char buffer[4096];
  while (std::size_t count = std::fread(buffer, 1, sizeof buffer, pipe)) text.append(buffer, count);
  pclose(pipe);
  return text;
}

// ---- whose environment it is ----

// A program that runs with another user's rights must not run code that its caller names.
TEST_F(Program, AnotherUsersEnvironmentNamesNoCode) {
  const std::string copy = folder_.file("attnforge"), named = folder_.file("named");
  std::filesystem::permissions(folder_.file(""), std::filesystem::perms(0755));
  std::filesystem::copy_file(ATTNFORGE_PROGRAM, copy);
  const auto doctor = [&] {
    const std::string command = "ATTNFORGE_CACHE=" + named + ".db ATTNFORGE_NVRTC=" + named +
                                ".so HOME=" + named + " ATTNFORGE_TEMPLATES=" + named +
                                " CUDA_HOME=" + named + " " + copy + " doctor 2>&1";
    return output_of(command);
  };
  for (const char* end : {".db", ".so"}) EXPECT_THAT(doctor(), HasSubstr(named + end));
  struct statvfs system = {};
  if (geteuid() != 0 || statvfs(copy.c_str(), &system) != 0 || (system.f_flag & ST_NOSUID) != 0 ||
      prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 0)
    GTEST_SKIP() << "no program can be run with another user's rights here";
  ASSERT_EQ(chown(copy.c_str(), 65534, 65534), 0);
  ASSERT_EQ(chmod(copy.c_str(), 04755), 0);
  EXPECT_THAT(doctor(), testing::AllOf(HasSubstr("database"), Not(HasSubstr(named))));
}

// ---- values of options ----

TEST_F(Program, BadValuesOfOptionsAreUsageErrorsInPlainWords) {
  const std::vector<std::pair<Words, const char*>> wrong = {
      {{"tune", "--time-limit", "nan", "fwd"}, "seconds from 0"},
      {{"tune", "--time-limit", "inf", "fwd"}, "seconds from 0"},
      {{"tune", "--time-limit", std::string(309, '9'), "fwd"}, "(309 characters)"},
      {{"run", "--time-limit", "-1", "--random", "1", "fwd"}, "seconds from 0"},
      {{"bench", "--seconds", "nan", "fwd"}, "seconds from 0"},
      {{"run", "--random", "100000000000000000000", "fwd"}, "whole number from 0"},
      {{"run", "--random", "-1", "fwd"}, "whole number from 0"},
      {{"run", "--random", "1", "--repeat", "0", "fwd"}, "from 1 to 1000000"},
      {{"bench", "--samples", "5", "--max-samples", "2", "fwd"}, "--max-samples 2 is less than"},
      {{"bench", "--samples", "0", "fwd"}, "from 1 to 1000000"},
      {{"bench", "--seed", "4294967296", "fwd"}, "from 0 to 4294967295"},
      {{"bench", "--gpu", "-1", "fwd"}, "from 0 to"},
      {{"bench", "--families", ",", "fwd"}, "names nothing"},
      {{"bench", "--from", "x.csv", "--plot", "p", "fwd"}, "--from x.csv measures nothing"},
      {{"tune", "--arch", ",", "fwd"}, "names nothing"},
      {{"tune", "--arch", "", "fwd"}, "names nothing"},
      {{"tune", "--axes", "block_n,stages", "fwd"}, "--axes requires --plot"},
      {{"tune", "--candidates", "5", "fwd"}, "--candidates requires --arch"},
      {{"tune", "--arch", "sm_86", "--family", "fwd_naive", "fwd"}, "excludes"},
      {{"tune", "--compile-threads", "-5", "fwd"}, "from 0 to 1024"},
      {{"tune", "--top", "99999999999", "fwd"}, "from 0 to 2147483647"},
      {{"inspect", "--candidates", "-1", "fwd"}, "from 0 to"},
      {{"inspect", "--no-compile", "--ptx", "fwd"}, "excludes"},
      {{"inspect", "--config", "", "fwd"}, "value is empty"},
      {{"cache", "show", "--top", "1.5"}, "whole number"},
  };
  for (const auto& [arguments, says] : wrong) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments);
    EXPECT_THAT(outcome.err, StartsWith("attnforge: "));
    EXPECT_THAT(outcome.err, HasSubstr(says));
    EXPECT_LT(outcome.err.size(), 300u) << outcome.err;
    EXPECT_EQ(std::count(outcome.err.begin(), outcome.err.end(), '\n'), 1) << outcome.err;
    EXPECT_EQ(outcome.out, "");
  }
}

/// The options of a verb's help, each with the name of its value; "" for flags.
std::map<std::string, std::string> documented_options(const std::string& help) {
  std::map<std::string, std::string> options;
  static const std::regex kLine(
      "\n  (?:-[a-z],)?(--[a-z0-9-]+)(?: (?!Excludes:|Needs:)([^ \n]+))?");
  for (std::sregex_iterator it(help.begin(), help.end(), kLine), end; it != end; ++it)
    options[(*it)[1].str()] = (*it)[2].str();
  options.erase("--help");
  return options;
}

TEST_F(Program, AProblemMayFollowEveryOption) {
  // A value of each option that takes one. One that is new belongs here.
  const std::map<std::string, std::string> values = {{"--arch", "sm_90"},
                                                     {"--axes", "block_n,stages"},
                                                     {"--cache", database()},
                                                     {"--candidates", "3"},
                                                     {"--compile-threads", "2"},
                                                     {"--config", "fwd_naive"},
                                                     {"--families", "all"},
                                                     {"--family", "fwd_naive"},
                                                     {"--file", "none.txt"},
                                                     {"--from", "none.csv"},
                                                     {"--gpu", "0"},
                                                     {"--shard", "0/1"},
                                                     {"--mpi", "problems.txt"},
                                                     {"--html", "none.html"},
                                                     {"--k", "k.npy"},
                                                     {"--q-scale", "q_scale.npy"},
                                                     {"--k-scale", "k_scale.npy"},
                                                     {"--v-scale", "v_scale.npy"},
                                                     {"--lse", "lse.npy"},
                                                     {"--bsr", "blocks.npy"},
                                                     {"--score", "s * 2"},
                                                     {"--mask", "k <= q"},
                                                     {"--arg", "window=16"},
                                                     {"--block", "64"},
                                                     {"--density", "0.5"},
                                                     {"--dk", "dk.npy"},
                                                     {"--dlse", "dlse.npy"},
                                                     {"--dsinks", "dsinks.npy"},
                                                     {"--sinks", "sinks.npy"},
                                                     {"--dout", "dout.npy"},
                                                     {"--dq", "dq.npy"},
                                                     {"--dv", "dv.npy"},
                                                     {"--mask-random", "0.5"},
                                                     {"--max-samples", "100"},
                                                     {"--o", "o.npy"},
                                                     {"--out", "none.csv"},
                                                     {"--plot", "pictures"},
                                                     {"--policy", "estimate"},
                                                     {"--q", "q.npy"},
                                                     {"--random", "1"},
                                                     {"--repeat", "3"},
                                                     {"--rigor", "quick"},
                                                     {"--rope-cos", "cos.npy"},
                                                     {"--lengths-q", "q.npy"},
                                                     {"--lengths-kv", "kv.npy"},
                                                     {"--page-table", "pages.npy"},
                                                     {"--rope-offset", "0"},
                                                     {"--rope-sin", "s.npy"},
                                                     {"--samples", "5"},
                                                     {"--seconds", "1"},
                                                     {"--section", "launch"},
                                                     {"--seed", "1"},
                                                     {"--time-limit", "1"},
                                                     {"--top", "3"},
                                                     {"--v", "v.npy"}};
  const std::map<std::string, Words> needs = {{"--axes", {"--plot", "pictures"}},
                                              {"--candidates", {"--arch", "sm_90"}},
                                              {"--from", {"--plot", "pictures"}}};
  int tried = 0;
  for (const char* verb : {"tune", "run", "bench", "inspect"}) {
    for (const auto& [option, type] : documented_options(run({verb, "--help"}).out)) {
      Words arguments = {verb};
      if (std::string(verb) == "run" && option != "--random")
        arguments.insert(arguments.end(), {"--random", "1"});
      if (std::string(verb) != "inspect" && needs.count(option))
        arguments.insert(arguments.end(), needs.at(option).begin(), needs.at(option).end());
      arguments.push_back(option);
      if (!type.empty()) {
        ASSERT_TRUE(values.count(option)) << "a value for " << option << " of " << verb;
        arguments.push_back(values.at(option));
      }
      arguments.insert(arguments.end(), {"fwd", "seqlen=nonsense"});
      const Outcome outcome = run(arguments);
      EXPECT_EQ(outcome.exit_code, 2) << testing::PrintToString(arguments) << outcome.err;
      // The problem was read, or refused beside the option.
      EXPECT_THAT(outcome.err, AnyOf(HasSubstr("seqlen=nonsense"), HasSubstr("exclude each other"),
                                     HasSubstr("problem excludes --mpi"),
                                     HasSubstr("measures nothing; leave out the problem")))
          << testing::PrintToString(arguments);
      ++tried;
    }
  }
  EXPECT_GT(tried, 50);
}

// ---- environment ----

TEST_F(Program, AWorkerThatAnybodyMayHavePutThereIsNotRun) {
  const std::string copy = folder_.file("attnforge"),
                    words = "env -u ATTNFORGE_WORKER " + copy + " doctor --cache :memory: 2>&1";
  std::filesystem::copy_file(ATTNFORGE_PROGRAM, copy);
  const auto doctor = [&] { return output_of(words); };
  std::filesystem::permissions(folder_.file(""), std::filesystem::perms(0755));
  EXPECT_THAT(doctor(), HasSubstr("by processes of " + copy));
  std::filesystem::permissions(folder_.file(""), std::filesystem::perms(0777));
  EXPECT_THAT(doctor(), AllOf(HasSubstr(copy + " can be written by every user"),
                              Not(HasSubstr("by processes of"))));
}

TEST_F(Program, SettingsThatAreNotUnderstoodAreRefused) {
  const Words inspect = {"inspect", "--arch", "sm_86", "--no-compile", "fwd", "seqlen=64"};
  const Outcome loud = run(inspect, {{"ATTNFORGE_LOG", "loud"}});
  EXPECT_EQ(loud.exit_code, 2);
  EXPECT_THAT(loud.err, HasSubstr("ATTNFORGE_LOG=loud: it is debug, info, warning, error or off"));
  const Outcome wal = run(inspect, {{"ATTNFORGE_CACHE_WAL", "yes"}});
  EXPECT_EQ(wal.exit_code, 2);
  EXPECT_THAT(wal.err, HasSubstr("ATTNFORGE_CACHE_WAL=yes: it is 1"));
  const Outcome trust = run(inspect, {{"ATTNFORGE_CACHE_TRUST", "all"}});
  EXPECT_EQ(trust.exit_code, 2);
  EXPECT_THAT(trust.err, HasSubstr("ATTNFORGE_CACHE_TRUST=all: it is own"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_CACHE_TRUST", "all"}}).out,
              HasSubstr("environment ATTNFORGE_CACHE_TRUST"))
      << "doctor goes on to its other lines";
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_WORKER", "/nowhere/attnforge"}}).out,
              AllOf(HasSubstr("ATTNFORGE_WORKER=/nowhere/attnforge: it is the path"),
                    HasSubstr("database")));
  const std::string site = folder_.write("site.db", "no database");
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_SITE_CACHE", site}}).out,
              HasSubstr("site.db is not a SQLite database"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_SITE_CACHE", site + ".none"}}).out,
              HasSubstr("there is no such file"));
  const std::string lines = folder_.write("none.jsonl", "");
  EXPECT_EQ(run({"cache", "import", lines}, {{"ATTNFORGE_CACHE_WAL", "yes"}}).exit_code, 2);
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_LOG", "loud"}}).out, HasSubstr("ATTNFORGE_LOG=loud"));
  EXPECT_EQ(run(inspect, {{"ATTNFORGE_LOG", ""}, {"ATTNFORGE_CACHE_WAL", ""}}).exit_code, 0);
}

// ---- texts of strangers ----

TEST_F(Program, NoTextOfAStrangerSteersTheTerminal) {
  const std::string escape = "\x1b]0;owned\a\x1b[2J\nattnforge: all is well";
  const std::string npy = folder_.write(
      "q.npy",
      std::string("\x93NUMPY\x01\x00\x46\x00", 10) +
          "{'descr': '\x1b[2Jf2', 'fortran_order': False, 'shape': (1, 1, 1, 8)}       \n");
  const std::string line = folder_.write("a.jsonl",
                                         "{\"kind\": \"\\u001b[2J\", \"format\": 1}\n" + escape);
  const std::vector<Words> commands = {
      {"tune", "--file", folder_.file(escape)},
      {"tune", "fwd " + escape},
      {"tune", "--" + escape},
      {"inspect", "--arch", escape, "fwd"},
      {"inspect", "--arch", "sm_86", "--config", escape, "fwd"},
      {"inspect", "--arch", "sm_86", "--family", escape, "fwd"},
      {"run", "--q", npy, "--k", npy, "--v", npy},
      {"bench", "--from", folder_.file(escape), "--plot", folder_.file("p")},
      {"cache", "import", line},
      {"cache", "ls", escape, "--cache", folder_.file(escape)},
      {"cache", "stats", "--cache", folder_.file(escape)},
      {"report", escape, "--cache", folder_.file(escape)},
      {"inspect", "--no-compile", "--arch", "sm_86", "--html", folder_.file("no/" + escape), "fwd"},
  };
  for (const Words& command : commands) {
    const Outcome outcome = run(command);
    EXPECT_NE(outcome.exit_code, 0) << testing::PrintToString(command);
    for (const std::string& text : {outcome.out, outcome.err}) {
      EXPECT_EQ(text.find_first_of("\x1b\a"), std::string::npos) << text;
      EXPECT_THAT(text, Not(HasSubstr("\nattnforge: all"))) << text;
    }
  }
  const Outcome doctor = run({"doctor"}, {{"ATTNFORGE_KERNEL_NAME", escape}});
  EXPECT_EQ(doctor.out.find_first_of("\x1b\a"), std::string::npos);
}

// ---- input without an end ----

TEST_F(Program, InputWithoutAnEndEnds) {
  for (const Words& command :
       {Words{"cache", "import", "/dev/zero"}, Words{"tune", "--file", "/dev/zero"},
        Words{"bench", "--from", "/dev/zero", "--plot", folder_.file("p")}}) {
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
    EXPECT_THAT(outcome.err,
                AnyOf(HasSubstr("longer than 64 KiB"), HasSubstr("larger than 64 MiB")));
  }
}

// ---- files that cannot be written ----

/// Through a shell, which can close files.
int shell(const std::string& redirections, const std::string& arguments) {
  const int status = std::system(
      ("CUDA_VISIBLE_DEVICES= '" ATTNFORGE_PROGRAM "' " + arguments + " " + redirections).c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST_F(Program, AMessageThatCannotBeWrittenIsNoCrash) {
  for (const char* err : {"2>&-", "2>/dev/full", "1>&- 2>&-", "0<&- 1>&- 2>&-"}) {
    EXPECT_EQ(shell(err, "tune --no-such-option"), 2) << err;
    EXPECT_EQ(shell(err, "inspect --arch sm_86 fwd head_dim=63"), 2) << err;
    EXPECT_EQ(shell(err, "cache stats --cache '" + folder_.file("none.db") + "'"), 1) << err;
  }
  EXPECT_EQ(shell("1>&- 2>&-", "list families"), 1) << "the list went nowhere";
  EXPECT_EQ(shell("1>/dev/full 2>&-", "list families"), 1);
}

TEST_F(Program, NoFileTakesThePlaceOfAClosedStandardError) {
  const std::string lines = folder_.file("out.csv");
  EXPECT_NE(shell("2>&-", "bench --out '" + lines + "' --families fwd_naive fwd seqlen=64"), 134);
  EXPECT_THAT(read_file(lines), Not(HasSubstr("attnforge:")));
}

// ---- sizes ----

TEST_F(Program, AGiantProblemSaysWhichMemoryIsTooSmall) {
  for (const Words& how : {Words{"--cpu"}, Words{}}) {
    Words command = {"run", "--random", "1",
                     "fwd bf16 batch=65536 num_heads=64 seqlen=65536 head_dim=64"};
    command.insert(command.end(), how.begin(), how.end());
    const Outcome outcome = run(command);
    EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
    EXPECT_THAT(outcome.err,
                HasSubstr("its tensors take 131072.0 GiB of host memory, and there are "));
  }
}

TEST_F(Program, InspectOfAVeryLongSequenceIsAsQuickAsOfAShortOne) {
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run({"inspect", "--arch", "sm_90", "--no-compile",
                               "fwd bf16 num_heads=1 seqlen=134217728 head_dim=64 causal"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 20) << "a walk over the query tiles takes minutes";
}

// ---- slow paths ----

TEST_F(Program, InspectSaysWhatMakesAProblemSlow) {
  const Words command = {"inspect", "--arch", "sm_90", "--no-compile",
                         "fwd bf16 q=fp32 o=fp32 num_heads=16 seqlen=4096 head_dim=128"};
  EXPECT_THAT(run(command).out, HasSubstr("make q, k, v and o all bf16"));
  Words as_json = command;
  as_json.insert(as_json.begin() + 1, "--json");
  EXPECT_THAT(Json::parse(run(as_json).out).at("slow_path").get<std::string>(),
              HasSubstr("fwd_naive serves"));
  as_json.back() = "fwd bf16 num_heads=16 seqlen=4096 head_dim=128";
  EXPECT_EQ(Json::parse(run(as_json).out).at("slow_path"), "");
}

}  // namespace
}  // namespace attnforge::cli
