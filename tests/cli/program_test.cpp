// program_test.cpp - the built program as a user meets it, on a machine without a GPU (if there is
// one, it is hidden).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attnforge/inspect.h"
#include "attnforge/version.h"
#include "tests/cli/program.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

class Program : public testing::Test {
 protected:
  Outcome run(const std::vector<std::string>& arguments, Environment more = {}) {
    return run_program(arguments, environment(std::move(more)));
  }
  Environment environment(Environment more = {}) const {
    more.insert({{"ATTNFORGE_CACHE", database()},
                 {"CUDA_VISIBLE_DEVICES", ""},
                 {"ATTNFORGE_LOG", "warning"}});
    return more;
  }
  std::string database() const { return folder_.file("cache.db"); }

  /// Whether a C++ program of this machine finds NVRTC.
  static bool has_nvrtc() {
    for (const Check& check : doctor(":memory:")) {
      if (check.name == "nvrtc") return check.state != Check::State::kFailed;
    }
    return false;
  }

  const TemporaryFolder folder_;
};

const std::vector<std::string> kVerbs = {"tune", "run",   "bench", "inspect",
                                         "list", "cache", "doctor"};

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
  }
  for (const char* action : {"ls", "show", "export", "import", "stats", "clear"}) {
    const Outcome outcome = run({"cache", action, "--help"});
    EXPECT_EQ(outcome.exit_code, 0) << action;
    EXPECT_THAT(outcome.out, HasSubstr("--cache")) << action;
  }
}

TEST_F(Program, Version) {
  const Outcome outcome = run({"--version"});
  EXPECT_EQ(outcome.exit_code, 0);
  EXPECT_EQ(outcome.out, std::string("attnforge ") + kVersion + "\n");
}

TEST_F(Program, UsageErrorsAreOneLineWithAdvice) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"tunes"},
      {"tune", "--rigor", "lazy", "fwd"},
      {"tune", "--time-limit", "-1", "fwd"},
      {"tune", "--no-such-option"},
      {"list", "nonsense"},
      {"cache"},
      {"bench", "--csv", "--json", "fwd"},
      {"bench", "--strategy", "split_k", "--families", "fwd_naive", "fwd"},
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
  EXPECT_THAT(outcome.err, HasSubstr("did you mean \"head_dim\""));
}

TEST_F(Program, AnUnknownStrategyIsNamedWithTheKnownOnes) {
  const Outcome outcome = run({"bench", "--strategy", "standard,split", "fwd", "head_dim=72"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("no strategy \"split\""));
  EXPECT_THAT(outcome.err, HasSubstr("standard, variable_block, split_k, register_tiled"));
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

// ---- no GPU ----

TEST_F(Program, WithoutAGpuExitCode5AndWhatToDo) {
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"tune", "fwd seqlen=64"},
        {"bench", "fwd seqlen=64"},
        {"inspect", "fwd seqlen=64"},
        {"run", "--random", "1", "fwd seqlen=64"},
        {"tune", "--gpu", "all", "fwd seqlen=64"}}) {
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.exit_code, 5) << testing::PrintToString(arguments) << outcome.err;
    EXPECT_THAT(outcome.err, StartsWith("attnforge: "));
    EXPECT_EQ(outcome.out, "");
  }
  EXPECT_THAT(run({"tune", "fwd seqlen=64"}).err, HasSubstr("tune --arch"));
  EXPECT_THAT(run({"inspect", "fwd seqlen=64"}).err, HasSubstr("--arch"));
}

TEST_F(Program, TheReferenceRunsWithoutAGpu) {
  const std::string o = folder_.file("o.npy");
  const Outcome outcome = run(
      {"run", "--cpu", "--random", "1", "--check", "--json", "--o", o,
       "fwd bf16 batch=2 num_heads=4:2 seqlen=33:65 head_dim=40 causal lse"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json["device"], "cpu");
  EXPECT_EQ(json["check"]["rows_checked"], 2 * 4 * 33);
  EXPECT_GT(json["check"]["max_error"], 0.0);  // bf16 rounds
  EXPECT_TRUE(std::filesystem::exists(o));
  EXPECT_EQ(run({"run", "--cpu", "--gpu", "0", "--random", "1", "fwd seqlen=8"}).exit_code, 2);
}

TEST_F(Program, ARopeHasItsUsualTablesOrThoseOfFiles) {
  const auto rope = [&](std::vector<std::string> more) {
    std::vector<std::string> words = {
        "run", "--cpu",   "--random",
        "1",   "--check", "fwd bf16 num_heads=2 seqlen=33:65 head_dim=40 causal"};
    words.insert(words.end(), more.begin(), more.end());
    return run(words);
  };
  EXPECT_EQ(rope({"rope=half"}).exit_code, 0);
  EXPECT_EQ(rope({"rope=interleaved", "rope_dim=16", "--rope-offset", "9"}).exit_code, 0);
  EXPECT_THAT(rope({"--rope-offset", "9"}).err, HasSubstr("need a problem with rope=half"));
  EXPECT_THAT(rope({"rope=half", "--rope-cos", "cos.npy"}).err, HasSubstr("belong together"));
  EXPECT_EQ(rope({"rope=half", "--rope-cos", "cos.npy"}).exit_code, 2);
  const std::string file = folder_.write("cos.npy", "no array");
  EXPECT_THAT(rope({"rope=half", "--rope-cos", file, "--rope-sin", file}).err,
              HasSubstr("cos.npy"));
}

TEST_F(Program, ABadGpuIsRefused) {
  const Outcome outcome = run({"tune", "--gpu", "first", "fwd seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("\"first\""));
}

// ---- inspect ----

const std::vector<std::string> kInspect = {"inspect",     "--arch",      "sm_86",
                                           "fwd",         "fp16",        "num_heads=8:2",
                                           "seqlen=1024", "head_dim=64", "causal"};

std::vector<std::string> inspect_with(std::vector<std::string> more) {
  more.insert(more.begin(), kInspect.begin(), kInspect.end());
  return more;
}

TEST_F(Program, InspectShowsEveryHop) {
  const Outcome outcome = run(kInspect);
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* heading : {"1. Problem", "2. GPU", "3. Candidates", "4. Config", "5. Source",
                              "6. Compiled", "7. Launch", "8. Database"}) {
    EXPECT_THAT(outcome.out, HasSubstr(heading));
  }
  EXPECT_THAT(outcome.out, HasSubstr("seqlen_q=1024"));
  EXPECT_THAT(outcome.out, HasSubstr("sm_86"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("\x1b["))) << "no colour in a file";
}

TEST_F(Program, InspectAsJson) {
  const Outcome outcome = run(inspect_with({"--json", "--candidates", "3", "--no-compile"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("device").at("arch"), "86");
  EXPECT_EQ(json.at("candidates").size(), 3u);
  EXPECT_GT(json.at("num_candidates").get<int>(), 100) << "the search space of a usual problem";
  EXPECT_EQ(json.at("cut").size(), 0u);
  EXPECT_GT(json.at("num_cut").get<int>(), 0);
  EXPECT_EQ(json.at("config"), json.at("candidates")[0].at("config"))
      << "the model's first choice, as nothing is measured";
  EXPECT_TRUE(json.at("compiled").is_null());
  EXPECT_FALSE(json.at("source").get<std::string>().empty());
  EXPECT_FALSE(json.at("launches").empty());
}

TEST_F(Program, InspectListsCutsWithReasons) {
  const Outcome outcome = run(inspect_with({"--json", "--cuts", "--no-compile"}));
  const Json json = Json::parse(outcome.out);
  ASSERT_EQ(json.at("cut").size(), json.at("num_cut").get<std::size_t>());
  for (const Json& cut : json.at("cut")) EXPECT_FALSE(cut.at("reason").get<std::string>().empty());
}

TEST_F(Program, InspectSourceIsOnlySourceAndComplete) {
  const Outcome outcome = run(inspect_with({"--source"}));
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("extern \"C\" __global__"));
  EXPECT_THAT(outcome.out, Not(HasSubstr("#include \""))) << "self-contained";
  const Outcome entry = run(inspect_with({"--entry"}));
  EXPECT_THAT(entry.out, HasSubstr("#include \""));
  EXPECT_LT(entry.out.size(), outcome.out.size());
}

TEST_F(Program, InspectTakesAConfigAndAFamily) {
  const Json first = Json::parse(
      run(inspect_with({"--json", "--candidates", "2", "--no-compile"})).out);
  const std::string second = first.at("candidates")[1].at("config");
  const Json forced = Json::parse(
      run(inspect_with({"--json", "--no-compile", "--config", second})).out);
  EXPECT_EQ(forced.at("config"), second);

  const Json naive = Json::parse(
      run(inspect_with({"--json", "--no-compile", "--family", "fwd_naive"})).out);
  EXPECT_THAT(naive.at("config").get<std::string>(), StartsWith("fwd_naive "));

  const Outcome unknown = run(inspect_with({"--family", "fwd_nothing"}));
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("fwd_nothing"));
  EXPECT_EQ(run(inspect_with({"--config", "fwd_naive nonsense"})).exit_code, 2);
}

TEST_F(Program, InspectAnUnknownArch) {
  const Outcome outcome = run({"inspect", "--arch", "sm_13", "fwd seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("13"));
  EXPECT_THAT(outcome.err, HasSubstr("86")) << "the archs that there are";
}

TEST_F(Program, InspectWithoutNvrtcSaysSoAndShowsTheRest) {
  const Outcome outcome = run(kInspect, {{"ATTNFORGE_NVRTC", folder_.file("no_nvrtc.so")}});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("not compiled: "));
  EXPECT_THAT(outcome.out, HasSubstr("7. Launch"));
  EXPECT_EQ(
      run(inspect_with({"--ptx"}), {{"ATTNFORGE_NVRTC", folder_.file("no_nvrtc.so")}}).exit_code,
      5);
}

TEST_F(Program, InspectCompilesAndPrintsPtx) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Json json = Json::parse(run(inspect_with({"--json"})).out);
  EXPECT_TRUE(json.at("compiled").at("ok").get<bool>()) << json.at("compiled").dump();
  EXPECT_GT(json.at("compiled").at("registers").get<int>(), 0);
  EXPECT_GT(json.at("compiled").at("blocks_per_sm").get<int>(), 0);
  const Outcome ptx = run(inspect_with({"--ptx"}));
  EXPECT_EQ(ptx.exit_code, 0) << ptx.err;
  EXPECT_THAT(ptx.out, HasSubstr(".target sm_86"));
}

// ---- tune --arch, and the database that it fills ----

TEST_F(Program, RankingFillsTheDatabaseThatCacheShows) {
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  const Outcome tuned = run({"tune", "--arch", "sm_86,sm_90", "--candidates", "2", "--json", "fwd",
                             "fp16", "seqlen=256"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json results = Json::parse(tuned.out).at("results");
  ASSERT_EQ(results.size(), 2u);
  EXPECT_EQ(results[0].at("device").at("arch"), "86");
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
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
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
  if (!has_nvrtc()) GTEST_SKIP() << "no NVRTC";
  EXPECT_EQ(
      run({"tune", "-q", "--arch", "sm_80", "--candidates", "1", "fwd", "fp16", "seqlen=256"}).err,
      "");
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

// ---- pictures ----

/// A sweep of a family at two lengths, as bench --out writes it.
constexpr const char* kSweep =
    "status,family,asked,batch,seqlen_q,head_dim,time_us,tflops_per_s,peak_bytes,quadratic_bytes,"
    "problem,gpu,date\n"
    "ok,fwd_a,fwd_a,1,512,64,10,1,1000,2000,fwd fp16 seqlen_q=512,NVIDIA H200,2026-01-31\n"
    "ok,fwd_a,fwd_a,1,1024,64,20,2,2000,8000,fwd fp16 seqlen_q=1024,NVIDIA H200,2026-01-31\n";

bool has_gnuplot() { return std::system("gnuplot --version > /dev/null 2>&1") == 0; }

TEST_F(Program, WithoutGnuplotDataAndScriptsAreWrittenAndItSaysWhatToInstall) {
  const std::string sweep = folder_.write("sweep.csv", kSweep);
  const std::string pictures = folder_.file("pictures");
  const Outcome outcome = run({"bench", "--from", sweep, "--plot", pictures},
                              {{"PATH", folder_.file("nothing")}});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("apt-get install gnuplot-nox"));
  for (const char* name : {"latency", "throughput", "memory"}) {
    EXPECT_THAT(read_file(pictures + "/" + name + ".dat"), HasSubstr("1024 "));
    EXPECT_THAT(read_file(pictures + "/" + name + ".gp"), HasSubstr("NVIDIA H200, 2026-01-31"));
  }
}

TEST_F(Program, AStoredSweepIsDrawn) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed: apt-get install gnuplot-nox";
  const std::string pictures = folder_.file("pictures");
  const Outcome outcome = run(
      {"bench", "--from", folder_.write("sweep.csv", kSweep), "--plot", pictures});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  for (const char* name : {"latency", "throughput", "memory"}) {
    EXPECT_THAT(read_file(pictures + "/" + name + ".png"), StartsWith("\x89PNG"));
    EXPECT_THAT(read_file(pictures + "/" + name + ".svg"), HasSubstr("sequence length (tokens)"));
  }
}

TEST_F(Program, TheLandscapeOfStoredTriesIsDrawn) {
  if (!has_gnuplot()) GTEST_SKIP() << "gnuplot is not installed: apt-get install gnuplot-nox";
  std::string lines;
  const char* const configs[] = {"block_m=64 block_n=32", "block_m=64 block_n=64",
                                 "block_m=128 block_n=32"};
  for (int i = 0; i < 3; ++i) {
    lines += Json{{"kind", "try"},
                  {"format", 1},
                  {"problem", "fwd fp16 seqlen_q=512"},
                  {"device_class", "NVIDIA H200 sm90a sms=132"},
                  {"config", std::string("fwd_a ") + configs[i]},
                  {"digest", "d"},
                  {"family", "fwd_a"},
                  {"rigor", "full"},
                  {"estimate_us", 1},
                  {"estimated", false},
                  {"status", "ok"},
                  {"time_us", 10 + i},
                  {"noise", 0},
                  {"samples", 9},
                  {"max_error", 0},
                  {"clock_mhz", 0},
                  {"detail", ""},
                  {"driver", ""},
                  {"nvrtc", ""},
                  {"uuid", ""},
                  {"attnforge_version", ""},
                  {"measured_at", "2026-01-31T12:00:00Z"}}
                 .dump() +
             "\n";
  }
  ASSERT_EQ(run({"cache", "import", folder_.write("tries.jsonl", lines)}).exit_code, 0);
  const std::string pictures = folder_.file("pictures");
  const Outcome outcome = run({"cache", "plot", "seqlen_q=512", "--out", pictures});
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  const std::string svg = read_file(pictures + "/landscape_fwd_a.svg");
  EXPECT_THAT(svg, HasSubstr("block_m"));
  EXPECT_THAT(svg, HasSubstr("NVIDIA H200, 2026-01-31"));
  EXPECT_EQ(run({"cache", "plot", "nothing like it"}).exit_code, 2);
}

TEST_F(Program, PicturesOfAStoredSweepNeedAFolder) {
  const Outcome outcome = run({"bench", "--from", folder_.write("sweep.csv", kSweep)});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("--plot"));
}

// ---- what the environment forces ----

TEST_F(Program, ABadSwitchIsAnErrorAndDoctorShowsIt) {
  const Outcome outcome = run({"inspect", "--arch", "sm_86", "--no-compile", "fwd", "seqlen=64"},
                              {{"ATTNFORGE_BLOCK_N", "many"}});
  EXPECT_EQ(outcome.exit_code, 2);
  EXPECT_THAT(outcome.err, HasSubstr("ATTNFORGE_BLOCK_N=many"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_BLOCK_N", "many"}}).out,
              HasSubstr("ATTNFORGE_BLOCK_N=many"));
  EXPECT_THAT(run({"doctor"}, {{"ATTNFORGE_BLOCK_N", "32"}}).out, HasSubstr("forced block_n=32"));
}

// ---- a driver without a real GPU: two devices, no memory ----

class ProgramOnFakeDriver : public Program {
 protected:
  Outcome run(const std::vector<std::string>& arguments) {
    return run_program(arguments, {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                   {"ATTNFORGE_CACHE", database()},
                                   {"ATTNFORGE_LOG", "off"}});
  }
};

TEST_F(ProgramOnFakeDriver, ListsGpus) {
  const Json devices = Json::parse(run({"list", "devices", "--json"}).out).at("devices");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].at("ordinal"), 1);
  EXPECT_EQ(devices[1].at("arch"), "90a");
}

TEST_F(ProgramOnFakeDriver, EachProblemOfAFileGetsItsResultOrItsError) {
  const std::string path = folder_.write("problems.txt",
                                         "fwd fp16 seqlen=64\nfwd fp16 seqlen=128\n");
  const Outcome outcome = run(
      {"tune", "--gpu", "all", "--rigor", "quick", "--json", "--file", path});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  const Json results = Json::parse(outcome.out).at("results");
  ASSERT_EQ(results.size(), 2u);
  for (const Json& result : results)
    EXPECT_FALSE(result.at("error").at("message").get<std::string>().empty());
  EXPECT_THAT(results[0].at("problem").get<std::string>(), HasSubstr("seqlen_q=64"));
  EXPECT_THAT(results[1].at("problem").get<std::string>(), HasSubstr("seqlen_q=128"));
}

TEST_F(ProgramOnFakeDriver, BenchWritesFailedRowsWithTheirReasons) {
  const std::string csv = folder_.file("rows.csv"), json = folder_.file("rows.json");
  const Outcome outcome = run({"bench", "fwd", "fp32", "seqlen=64,128", "head_dim=64", "--families",
                               "fwd_mma_sm80", "--out", csv, "--out", json});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  const Json rows = Json::parse(read_file(json)).at("results");
  ASSERT_EQ(rows.size(), 2u) << "the sweep goes on";
  for (const Json& row : rows) {
    EXPECT_EQ(row.at("status"), "unsupported");
    EXPECT_EQ(row.at("family"), "fwd_mma_sm80");
    EXPECT_THAT(row.at("error").at("message").get<std::string>(), HasSubstr("fp32"));
  }
  EXPECT_THAT(read_file(csv), HasSubstr("\nunsupported,fwd_mma_sm80,fwd_mma_sm80,"));
  EXPECT_THAT(outcome.out, HasSubstr("failed"));
}

TEST_F(ProgramOnFakeDriver, BenchEndsWhenTheGpuIsLostAndKeepsTheRow) {
  const std::string csv = folder_.file("rows.csv");
  const Outcome outcome = run({"bench", "fwd", "fp16", "seqlen=64,128", "--out", csv});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("after row 1 of 2"));
  const std::string rows = read_file(csv);
  EXPECT_EQ(std::count(rows.begin(), rows.end(), '\n'), 2);
  EXPECT_THAT(rows, HasSubstr("\ncuda,"));
}

TEST_F(ProgramOnFakeDriver, BenchShowsABarOnATerminal) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals";
  const Outcome outcome = run_on_terminal(
      100, {"bench", "fwd fp32 seqlen=64,128 head_dim=64", "--families", "fwd_mma_sm80", "--json"},
      {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR}, {"ATTNFORGE_CACHE", database()}});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.out;
  EXPECT_THAT(outcome.out, HasSubstr("measure"));
  EXPECT_THAT(outcome.out, HasSubstr("1/2"));
  EXPECT_THAT(outcome.out, HasSubstr("1 failed"));
}

TEST_F(ProgramOnFakeDriver, AProblemLargerThanTheGpuIsARow) {
  const Outcome outcome = run(
      {"bench", "fwd fp16 batch=4096 num_heads=64 seqlen=65536 head_dim=128", "--json"});
  EXPECT_EQ(outcome.exit_code, 3);
  EXPECT_THAT(outcome.out, HasSubstr("the GPU has 141.0 GiB"));
}

TEST_F(ProgramOnFakeDriver, TheErrorOfASingleProblemIsPrintedOnce) {
  const Outcome outcome = run({"tune", "--rigor", "quick", "fwd fp16 seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(outcome.out, "");
  EXPECT_THAT(outcome.err, HasSubstr("attnforge: "));
}

TEST_F(ProgramOnFakeDriver, AGpuThatIsNotThere) {
  const Outcome outcome = run({"run", "--random", "1", "--gpu", "7", "fwd fp16 seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("7"));
}

TEST_F(ProgramOnFakeDriver, AnAllocationThatFailsSaysHowMuch) {
  const Outcome outcome = run(
      {"run", "--random", "1", "fwd fp16 num_heads=2 seqlen=64 head_dim=32"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("8192 bytes"));
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

TEST_F(Program, CacheImportNamesABadLine) {
  const Outcome outcome = run(
      {"cache", "import", folder_.write("bad.jsonl", "{\"kind\": \"try\"\n")});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("line 1"));
  EXPECT_EQ(run({"cache", "import", folder_.file("none.jsonl")}).exit_code, 1);
}

// ---- list, doctor ----

TEST_F(Program, ListAsTextAndJson) {
  const Outcome text = run({"list"});
  EXPECT_EQ(text.exit_code, 0);
  EXPECT_THAT(text.out, HasSubstr("fwd_mma_sm80"));
  EXPECT_THAT(text.out, HasSubstr("fwd_naive"));
  EXPECT_THAT(text.out, HasSubstr("sm_90a"));

  const Json json = Json::parse(run({"list", "--json"}).out);
  EXPECT_GE(json.at("families").size(), 2u);
  EXPECT_EQ(json.at("families").back().at("name"), "fwd_naive") << "best first, naive last";
  EXPECT_EQ(json.at("devices"), Json::array());
  EXPECT_GE(json.at("archs").size(), 6u);
  EXPECT_EQ(Json::parse(run({"list", "families", "--json"}).out).count("archs"), 0u);
}

TEST_F(Program, DoctorReportsChecksAndEnvironment) {
  const Outcome text = run({"doctor"});
  EXPECT_EQ(text.exit_code, 5) << "no GPU can be seen";
  for (const char* part : {"driver", "nvrtc", "database", "disk", "ATTNFORGE_CACHE", "-> "}) {
    EXPECT_THAT(text.out, HasSubstr(part));
  }
  const Json json = Json::parse(run({"doctor", "--json"}).out);
  EXPECT_FALSE(json.at("checks").empty());
  for (const Json& check : json.at("checks")) {
    EXPECT_THAT((std::vector<std::string>{"ok", "warning", "failed"}),
                testing::Contains(check.at("state")));
    EXPECT_TRUE(check.at("state") != "failed" || check.at("advice") != "") << check.dump();
  }
  bool found = false;
  for (const Json& variable : json.at("environment")) {
    if (variable.at("name") != "ATTNFORGE_CACHE") continue;
    found = true;
    EXPECT_EQ(variable.at("value"), database());
  }
  EXPECT_TRUE(found);
}

TEST_F(Program, ColoursOnATerminalUnlessNoColor) {
  if (!has_terminals()) GTEST_SKIP() << "no pseudo-terminals";
  EXPECT_THAT(run_on_terminal(80, {"list"}, environment({{"TERM", "xterm"}, {"NO_COLOR", ""}})).out,
              HasSubstr("\x1b[1m"));
  EXPECT_THAT(
      run_on_terminal(80, {"list"}, environment({{"TERM", "xterm"}, {"NO_COLOR", "1"}})).out,
      Not(HasSubstr("\x1b[")));
  EXPECT_THAT(run_on_terminal(80, {"list"}, environment({{"TERM", "dumb"}, {"NO_COLOR", ""}})).out,
              Not(HasSubstr("\x1b[")));
}

// ---- run: what needs no GPU ----

TEST_F(Program, RunRefusesBadFilesBeforeItLooksForAGpu) {
  const std::string text = folder_.write("q.npy", "not an npy file");
  const Outcome bad = run({"run", "--q", text, "--k", text, "--v", text});
  EXPECT_EQ(bad.exit_code, 1);
  EXPECT_THAT(bad.err, HasSubstr(text + ": it is not an .npy file"));
  const Outcome missing = run({"run", "--q", text, "--k", text});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("--v is missing"));
  EXPECT_EQ(run({"run", "--random", "1", "--q", text, "fwd"}).exit_code, 2);
}

TEST_F(Program, AFullDiskIsAFailure) {
  const pid_t process = start_program({"list"}, environment(), "/dev/full", folder_.file("err"));
  EXPECT_EQ(exit_code_of(process), 1);
  EXPECT_THAT(read_file(folder_.file("err")), HasSubstr("could not be written"));
}

}  // namespace
}  // namespace attnforge::cli
