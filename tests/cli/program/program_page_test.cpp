// program_page_test.cpp - inspect --html and report: pages with the numbers that --json prints.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/inspect.h"
#include "tests/cli/program/program_fixture.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;
using Words = std::vector<std::string>;

const Words kProblem = {"--arch", "sm_86", "fwd", "fp16", "num_heads=8:2", "seqlen=1024", "causal"};

Words with(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The page's one block of JSON.
Json data_of(const std::string& page) {
  const std::string begin = "<script type=\"application/json\" id=\"data\">";
  const std::size_t at = page.find(begin);
  if (at == page.npos || page.find(begin, at + 1) != page.npos) return nullptr;
  const std::size_t first = at + begin.size();
  return Json::parse(page.substr(first, page.find("</script>", first) - first));
}

TEST_F(Program, ThePageHasTheNumbersOfInspectJson) {
  const std::string path = folder_.file("kernel.html");
  const Outcome outcome = run(with({"inspect", "--html", path}, kProblem));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(outcome.out, path + "\n");
  const std::string page = read_file(path);
  EXPECT_LT(page.size(), 1u << 20);
  Json shown = data_of(page).at("inspect");
  Json printed = Json::parse(run(with({"inspect", "--json", "--candidates", "0"}, kProblem)).out);
  for (Json* each : {&shown, &printed}) {
    each->at("compiled").erase("compile_ms");
    each->at("compiled").erase("cubin_bytes");  // with line info
  }
  EXPECT_EQ(shown, printed);
  EXPECT_GT(shown.at("tiles").at("block_n").get<int>(), 0);
}

TEST_F(Program, CutsOnThePageAreCountedByKind) {
  const Json data = data_of(run(with({"inspect", "--html", "-", "--no-compile"}, kProblem)).out);
  int cut = 0;
  for (const Json& kind : data.at("cut_kinds")) {
    cut += kind.at("count").get<int>();
    EXPECT_FALSE(kind.at("reason").get<std::string>().empty());
    EXPECT_FALSE(kind.at("config").get<std::string>().empty());
  }
  EXPECT_EQ(cut, data.at("inspect").at("num_cut").get<int>());
  EXPECT_LT(data.at("cut_kinds").size(), 200u);
}

TEST_F(Program, ThePageHasEachOfItsConfigsInWords) {
  const Json data = data_of(run(with({"inspect", "--html", "-", "--no-compile"}, kProblem)).out);
  std::vector<std::string> configs = {data.at("inspect").at("config")};
  for (const Json* list : {&data.at("inspect").at("candidates"), &data.at("inspect").at("measured"),
                           &data.at("cut_kinds")})
    for (const Json& each : *list) configs.push_back(each.at("config"));
  ASSERT_EQ(data.at("words").size(), configs.size());
  for (std::size_t i = 0; i < configs.size(); ++i) {
    EXPECT_EQ(data.at("words")[i], describe_config(configs[i]));
    EXPECT_NE(data.at("words")[i], configs[i]);
  }
}

TEST_F(Program, ThePageNeedsNoNetwork) {
  const std::string page = run(with({"inspect", "--html", "-"}, kProblem)).out;
  const std::size_t data = page.find("id=\"data\""), end = page.find("</script>", data);
  const std::string own = page.substr(0, data) + page.substr(end);
  EXPECT_THAT(own, Not(HasSubstr("http:")));
  EXPECT_THAT(own, Not(HasSubstr("https:")));
  EXPECT_THAT(own, Not(HasSubstr(" src=")));
}

TEST_F(Program, LinesOfPtxOnThePageComeFromLinesOfTheSource) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const std::string path = folder_.file("kernel.html");
  const Outcome outcome = run_with_nvrtc(with({"inspect", "--html", path}, kProblem));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json data = data_of(read_file(path));
  const std::string source = data.at("inspect").at("source");
  const auto lines = std::count(source.begin(), source.end(), '\n');
  const Json& ptx = data.at("ptx");
  int linked = 0;
  for (const Json& origin : ptx.at("origin")) linked += origin.get<int>() >= 0 ? 1 : 0;
  EXPECT_GT(linked, 500);
  bool deep = false;
  for (const Json& origin : ptx.at("origins")) {
    for (const Json& line : origin) EXPECT_LE(line.get<int>(), lines);
    deep = deep || origin.size() > 2;
  }
  EXPECT_TRUE(deep) << "functions inlined into functions";
  // What is inlined is inlined into the one call of the entry, counted in the file that is shown.
  std::vector<std::string> text;
  std::istringstream stream(source);
  for (std::string line; std::getline(stream, line);) text.push_back(line);
  for (const Json& origin : ptx.at("origins")) {
    if (origin.size() > 1)
      EXPECT_THAT(text.at(origin.back().get<std::size_t>() - 1), HasSubstr("::run(p)"));
  }
  EXPECT_TRUE(data.at("sass").is_null() != data.at("no_sass").get<std::string>().empty())
      << "SASS, or what to install";
}

TEST_F(Program, WithoutNvrtcThePageSaysSoAndShowsTheRest) {
  const std::string path = folder_.file("kernel.html");
  const Outcome outcome = run(with({"inspect", "--html", path}, kProblem),
                              {{"ATTNFORGE_NVRTC", folder_.file("no_nvrtc.so")}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json data = data_of(read_file(path));
  EXPECT_TRUE(data.at("inspect").at("compiled").is_null());
  EXPECT_FALSE(data.at("inspect").at("not_compiled").get<std::string>().empty());
  EXPECT_FALSE(data.at("inspect").at("source").get<std::string>().empty());
}

TEST_F(Program, AFileThatCannotBeWrittenIsAnErrorAndLeavesNothing) {
  const std::string path = folder_.file("no/such/folder/kernel.html");
  const Outcome outcome = run(with({"inspect", "--no-compile", "--html", path}, kProblem));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("cannot be written"));
  const Outcome both = run(with({"inspect", "--json", "--html", path}, kProblem));
  EXPECT_EQ(both.exit_code, 2);
}

// ---- report ----

/// An export of two tries of `problem`; `digest` of the faster one.
std::string lines_of(const std::string& problem, const std::string& config,
                     const std::string& digest) {
  Json line{{"kind", "try"},
            {"format", 1},
            {"problem", problem},
            {"device_class",
             "NVIDIA GeForce RTX 3090 sm_86 sms=82 memory_clock_mhz=9751 "
             "l2_bytes=6291456"},
            {"config", config},
            {"digest", digest},
            {"family", config.substr(0, config.find(' '))},
            {"rigor", "full"},
            {"estimate_us", 50},
            {"estimated", false},
            {"status", "ok"},
            {"time_us", 40},
            {"noise", 0.01},
            {"samples", 21},
            {"max_error", 0.001},
            {"clock_mhz", 1695},
            {"detail", ""},
            {"driver", "13000"},
            {"nvrtc", "13.0"},
            {"uuid", ""},
            {"attnforge_version", "0.1.0"},
            {"measured_at", "2026-01-02T03:04:05Z"}};
  const std::string first = line.dump();
  line["config"] = "</script><script>alert(1)</script> a=1";
  line["family"] = "</script>";
  line["digest"] = "0123456789abcdef0123456789abcdef";
  line["estimate_us"] = 45;
  line["time_us"] = 60;
  line["detail"] = "ptxas says <!-- \x7f </script>";
  return first + "\n" + line.dump() + "\n";
}

class ProgramReport : public Program {
 protected:
  void SetUp() override {
    const Json shown = Json::parse(run(with({"inspect", "--json", "--no-compile"}, kProblem)).out);
    problem_ = shown.at("measured_as");
    config_ = shown.at("config");
    digest_ = shown.at("digest");
  }
  void import(const std::string& digest) {
    const std::string file = folder_.write("export.jsonl", lines_of(problem_, config_, digest));
    ASSERT_EQ(run({"cache", "import", file}).exit_code, 0);
  }
  std::string problem_, config_, digest_;
};

TEST_F(ProgramReport, SaysGainsAndWhatIsOfTheCodeOfToday) {
  import(digest_);
  const Json json = Json::parse(run({"report", "--json"}).out);
  ASSERT_EQ(json.at("rows").size(), 1u);
  const Json& row = json.at("rows")[0];
  EXPECT_EQ(row.at("config"), config_);
  EXPECT_DOUBLE_EQ(row.at("gain").get<double>(), 1.5);
  EXPECT_EQ(row.at("state"), "today");
  EXPECT_EQ(row.at("gpu"), "NVIDIA GeForce RTX 3090");
  EXPECT_THAT(run({"report"}).out, HasSubstr("1.50x"));
}

TEST_F(ProgramReport, AnotherDigestIsStale) {
  import("0123456789abcdef0123456789abcdee");
  const Json json = Json::parse(run({"report", "--json"}).out);
  EXPECT_EQ(json.at("rows")[0].at("state"), "stale");
  EXPECT_EQ(json.at("stale"), 1);
}

TEST_F(ProgramReport, ItsPageHasTheNumbersOfItsJson) {
  import(digest_);
  const std::string path = folder_.file("report.html");
  ASSERT_EQ(run({"report", "--html", path}).exit_code, 0);
  Json shown = data_of(read_file(path)), printed = Json::parse(run({"report", "--json"}).out);
  EXPECT_EQ(shown.at("words").at(0), describe_config(config_));
  shown.erase("words");
  for (Json* each : {&shown, &printed}) each->erase("made");
  EXPECT_EQ(shown, printed);
}

TEST_F(ProgramReport, HostileTriesAreTextOnBothPages) {
  const std::string empty = run(with({"inspect", "--no-compile", "--html", "-"}, kProblem)).out;
  import(digest_);
  const std::string full = run(with({"inspect", "--no-compile", "--html", "-"}, kProblem)).out;
  const Json measured = data_of(full).at("inspect").at("measured");
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_EQ(measured[1].at("config"), "</script><script>alert(1)</script> a=1");
  const auto scripts = [](const std::string& page) {
    int count = 0;
    for (std::size_t at = page.find("<script"); at != page.npos; at = page.find("<script", at + 1))
      ++count;
    return count;
  };
  EXPECT_EQ(scripts(full), scripts(empty));
  EXPECT_EQ(scripts(run({"report", "--html", "-"}).out), 2);
}

TEST_F(Program, ReportOfNoDatabaseSaysWhatToDo) {
  const Outcome outcome = run({"report"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("tune or import"));
}

}  // namespace
}  // namespace attnforge::cli
