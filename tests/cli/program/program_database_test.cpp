// program_database_test.cpp - the database that tune --arch fills, and attnforge cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "tests/cli/program/program.h"
#include "tests/cli/program/program_fixture.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

// ---- tune --arch, and the database that it fills ----

TEST_F(Program, RankingFillsTheDatabaseThatCacheShows) {
  const Outcome tuned = run({"tune", "--arch", "sm_86,sm_90", "--candidates", "2", "--json", "fwd",
                             "fp16", "seqlen=256"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json results = Json::parse(tuned.out).at("results");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].at("device").at("arch"), "sm_86");
  EXPECT_EQ(results[0].at("ranked").size(), 2u);
  EXPECT_GT(results[0].at("ranked")[0].at("compiled").at("registers").get<int>(), 0);

  const Json entries = Json::parse(run({"cache", "ls", "--json"}).out).at("entries");
  ASSERT_EQ(entries.size(), 2u) << "two GPU classes";
  EXPECT_TRUE(entries[0].at("estimated").get<bool>());
  EXPECT_EQ(entries[0].at("tries"), 2);
  EXPECT_THAT(run({"cache", "ls"}).out, HasSubstr("estimate"));
  EXPECT_THAT(run({"cache", "ls", "no such problem"}).out,
              HasSubstr("no problem in the database matches"));

  const Json lines = Json::parse(run({"cache", "show", "--json", "seqlen_q=256"}).out).at("lines");
  EXPECT_EQ(lines.size(), 4u);
  const Outcome show = run({"cache", "show", "--top", "1", "seqlen_q=256"});
  EXPECT_EQ(show.exit_code, 0);
  EXPECT_THAT(show.out, HasSubstr("and 1 more"));

  const Json stats = Json::parse(run({"cache", "stats", "--json"}).out);
  EXPECT_EQ(stats.at("tries"), 4);
  EXPECT_EQ(stats.at("path"), database());
  EXPECT_TRUE(stats.at("healthy").get<bool>());

  const std::string lines_path = folder_.file("lines.jsonl"), other = folder_.file("other.db");
  EXPECT_EQ(run({"cache", "export", lines_path}).exit_code, 0);
  EXPECT_EQ(run({"cache", "export"}).out, read_file(lines_path))
      << "standard output is the default";
  EXPECT_EQ(run({"cache", "import", lines_path, "--cache", other}).exit_code, 0);
  EXPECT_EQ(run({"cache", "import", lines_path, "--cache", other}).exit_code, 0) << "twice is once";
  EXPECT_EQ(Json::parse(run({"cache", "stats", "--json", "--cache", other}).out).at("tries"), 4);

  EXPECT_EQ(run({"cache", "clear"}).exit_code, 2) << "everything is deleted only when asked for";
  EXPECT_EQ(run({"cache", "clear", "--all", "fwd"}).exit_code, 2);
  EXPECT_EQ(run({"cache", "clear", "seqlen_q=256"}).out, "4 tries deleted\n");
  EXPECT_EQ(Json::parse(run({"cache", "ls", "--json"}).out).at("entries").size(), 0u);
}

TEST_F(Program, ProgressIsRedrawnOnATerminalAndFitsIt) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals";
  constexpr int kColumns = 60;
  const Outcome outcome = run_on_terminal(
      kColumns,
      {"tune", "--arch", "sm_80", "--candidates", "3", "--json", "fwd", "fp16", "seqlen=256"},
      environment());
  EXPECT_EQ(outcome.exit_code, 0) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("compile"));
  EXPECT_THAT(outcome.out, HasSubstr("3/3"));
  EXPECT_THAT(outcome.out, HasSubstr("\x1b[K"));
  std::istringstream bars(outcome.out.substr(0, outcome.out.find('{')));
  for (std::string line; std::getline(bars, line);) {
    for (std::size_t at = line.find("\x1b["); at != line.npos; at = line.find("\x1b[")) {
      line.erase(at, line.find_first_of("AKJ", at) - at + 1);
    }
    EXPECT_LE(line.size(), kColumns + 1u) << line;  // with \r at both ends
  }
}

TEST_F(Program, QuietShowsNoProgress) {
  EXPECT_EQ(
      run({"tune", "-q", "--arch", "sm_80", "--candidates", "1", "fwd", "fp16", "seqlen=256"}).err,
      "");
}

// ---- cache without a database ----

TEST_F(Program, CacheOfAMissingFileIsAnErrorAndCreatesNothing) {
  for (const char* action : {"ls", "show", "stats", "export"}) {
    const Outcome outcome = run({"cache", action});
    EXPECT_EQ(outcome.exit_code, 1) << action;
    EXPECT_THAT(outcome.err, HasSubstr(database())) << action;
    EXPECT_FALSE(std::filesystem::exists(database())) << action;
  }
}

TEST_F(Program, CacheLsOfAnEmptyDatabase) {
  const std::string nothing = folder_.write("nothing.jsonl", "");
  ASSERT_EQ(run({"cache", "import", nothing}).exit_code, 0);
  const Outcome outcome = run({"cache", "ls"});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, "no problem in the database matches\n");
  EXPECT_EQ(Json::parse(run({"cache", "ls", "--json"}).out).at("entries"), Json::array());
}

// ---- databases that are none, that are damaged, that others can write ----

TEST_F(Program, AFileThatIsNoDatabaseIsNeverTouched) {
  const std::string bytes = "# Read me first\n", file = folder_.write("README.md", bytes);
  const std::vector<std::vector<std::string>> verbs = {
      {"cache", "ls"},
      {"cache", "show"},
      {"cache", "stats"},
      {"cache", "verify"},
      {"cache", "export"},
      {"cache", "clear", "--all"},
      {"cache", "import", folder_.write("nothing.jsonl", "")},
      {"tune", "--arch", "sm_86", "fwd", "fp16", "seqlen=256"}};
  for (std::vector<std::string> verb : verbs) {
    verb.insert(verb.end(), {"--cache", file});
    const Outcome outcome = run(verb);
    EXPECT_EQ(outcome.exit_code, 1) << verb[0] << " " << verb[1];
    EXPECT_THAT(outcome.err, HasSubstr("is not a SQLite database")) << verb[0] << " " << verb[1];
    EXPECT_EQ(read_file(file), bytes);
  }
  EXPECT_THAT(run({"doctor", "--cache", file}).out, HasSubstr("is not a SQLite database"));
  EXPECT_EQ(
      run({"inspect", "--arch", "sm_86", "fwd", "fp16", "seqlen=256", "--cache", file}).exit_code,
      0)
      << "plans need no database";
  EXPECT_EQ(read_file(file), bytes);
  for (const auto& entry : std::filesystem::directory_iterator(folder_.file("")))
    EXPECT_THAT(entry.path().filename().string(), testing::AnyOf("README.md", "nothing.jsonl"));
}

TEST_F(Program, CacheVerifySaysWhatIsWrong) {
  ASSERT_EQ(run({"cache", "import", folder_.write("nothing.jsonl", "")}).exit_code, 0);
  const Outcome sound = run({"cache", "verify"});
  EXPECT_EQ(sound.exit_code, 0) << sound.err;
  EXPECT_EQ(sound.out, "ok\n");
  std::string bytes = read_file(database());
  const std::size_t page = bytes.rfind("exhaustive");  // a row of the table rigors
  ASSERT_NE(page, std::string::npos);
  bytes[page] = 'f';  // out of order, and not what its index says
  folder_.write("cache.db", bytes);
  const Outcome damaged = run({"cache", "verify", "--json"});
  EXPECT_EQ(damaged.exit_code, 1);
  EXPECT_THAT(Json::parse(damaged.out).at("faults").dump(), HasSubstr("rigors"));
  EXPECT_EQ(run({"cache", "stats"}).exit_code, 1);
  EXPECT_THAT(run({"doctor"}).out, HasSubstr("cache verify"));
}

TEST_F(Program, ADatabaseThatOthersCanWriteIsRefusedInWords) {
  ASSERT_EQ(run({"cache", "import", folder_.write("nothing.jsonl", "")}).exit_code, 0);
  std::filesystem::permissions(database(), std::filesystem::perms(0666));
  for (const char* action : {"ls", "verify", "stats"}) {
    const Outcome outcome = run({"cache", action});
    EXPECT_EQ(outcome.exit_code, 1) << action;
    EXPECT_THAT(outcome.err, HasSubstr("can be written by every user")) << action;
    EXPECT_THAT(outcome.err, HasSubstr("ATTNFORGE_CACHE_TRUST=any")) << action;
  }
  EXPECT_THAT(run({"doctor"}).out, HasSubstr("can be written by every user"));
  EXPECT_EQ(run({"cache", "ls"}, {{"ATTNFORGE_CACHE_TRUST", "any"}}).exit_code, 0);
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_CACHE_TRUST", "any"}}).out,
              HasSubstr("used because of ATTNFORGE_CACHE_TRUST"));
}

TEST_F(Program, CacheImportNamesABadLine) {
  const Outcome outcome = run(
      {"cache", "import", folder_.write("bad.jsonl", "{\"kind\": \"try\"\n")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("line 1"));
  EXPECT_EQ(run({"cache", "import", folder_.file("none.jsonl")}).exit_code, 1);
}

}  // namespace
}  // namespace attnforge::cli
