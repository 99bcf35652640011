// program_fake_driver_test.cpp - the program on a driver of two devices without memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/program/program.h"
#include "tests/cli/program/program_fixture.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class ProgramOnFakeDriver : public Program {
 protected:
  Outcome run(const std::vector<std::string>& arguments) {
    return run_program(arguments, {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                   {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
                                   {"ATTNFORGE_CACHE", database()},
                                   {"ATTNFORGE_LOG", "off"}});
  }
};

/// With memory and time.
class ProgramOnFakeGpu : public Program {
 protected:
  static constexpr const char* kText = "fwd fp16 seqlen=64 head_dim=64";
  Outcome run(const std::vector<std::string>& arguments) {
    return run_program(arguments, environment({{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                               {"CUDA_VISIBLE_DEVICES", "0"},
                                               {"ATTNFORGE_LOG", "off"},
                                               {"FAKE_GPU_LAUNCH_US", "1"}}));
  }
};

TEST_F(ProgramOnFakeDriver, DoctorNamesTheComputeMode) {
  const auto said = [&](const char* mode) {
    return run_program({"doctor"}, {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                    {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
                                    {"ATTNFORGE_CACHE", database()},
                                    {"FAKE_COMPUTE_MODE", mode}})
        .out;
  };
  EXPECT_THAT(said("0"), HasSubstr("GiB, compute mode default, "));
  EXPECT_THAT(said("2"), testing::AllOf(HasSubstr("compute mode prohibited"),
                                        HasSubstr("nvidia-smi -i 0 -c DEFAULT")));
  EXPECT_THAT(said("3"), testing::AllOf(HasSubstr("compute mode exclusive process"),
                                        HasSubstr("first runs have no workers")));
}

/// A fake GPU finds no block; how many there are comes from the problem.
TEST_F(ProgramOnFakeDriver, RunFindsTheBlocksOfAMaskText) {
  const Outcome outcome = run_program(
      {"run", "--random", "1", "--mask", "k <= q + ahead[0]", "--arg", "ahead=random", "fwd bf16",
       "num_heads=2", "seqlen=256", "head_dim=64", "blocks=64"},
      {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
       {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
       {"ATTNFORGE_CACHE", database()},
       {"ATTNFORGE_LOG", "off"},
       {"FAKE_GPU_LAUNCH_US", "1"}});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("0% of 16 blocks of 64 x 64 are present"));
  EXPECT_THAT(outcome.out, HasSubstr("mask=\"k <= q + ahead[0]\""));
}

TEST_F(ProgramOnFakeDriver, ListsGpus) {
  const Json devices = Json::parse(run({"list", "devices", "--json"}).out).at("devices");
  ASSERT_EQ(devices.size(), 2u);
  EXPECT_EQ(devices[1].at("ordinal"), 1);
  EXPECT_EQ(devices[1].at("arch"), "sm_90a");
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

// ---- results that cannot be stored ----

TEST_F(ProgramOnFakeGpu, ATuningThatCannotStoreEndsBeforeItMeasures) {
  std::filesystem::create_directory(folder_.file("folder"));
  ASSERT_EQ(mkfifo(folder_.file("fifo").c_str(), 0600), 0);
  std::filesystem::create_symlink("round", folder_.file("trip"));
  std::filesystem::create_symlink("trip", folder_.file("round"));
  for (const auto& [name, reason] :
       std::map<std::string, std::string>{{"folder", "is a folder"},
                                          {"fifo", "is no file"},
                                          {"round", "a loop of symbolic links"}}) {
    const std::string path = folder_.file(name);
    for (const char* verb : {"--rigor=quick", "--arch=sm_90a"}) {
      const Outcome outcome = run({"tune", verb, kText, "--cache", path});
      EXPECT_EQ(outcome.exit_code, 1) << name;
      EXPECT_EQ(outcome.out, "") << name;
      EXPECT_THAT(outcome.err, HasSubstr("cannot be stored")) << name;
      EXPECT_THAT(outcome.err, HasSubstr(reason)) << name;
    }
    const std::string doctor = run({"doctor", "--cache", path}).out;
    EXPECT_THAT(doctor, HasSubstr(reason)) << name;
    EXPECT_THAT(doctor, testing::Not(HasSubstr("will be created"))) << name;
  }
}

// The disk fills up in the minutes of a search.
TEST_F(ProgramOnFakeGpu, AWinnerThatIsNotStoredIsShownAndTheExitCodeSaysSo) {
  ASSERT_EQ(run({"cache", "import", folder_.write("nothing.jsonl", "")}).exit_code, 0);
  const auto limited = [&](std::vector<std::string> words) {
    rlimit before{};
    getrlimit(RLIMIT_FSIZE, &before);
    rlimit full = before;
    full.rlim_cur = std::filesystem::file_size(database());
    const auto handler = signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &full);
    const Outcome outcome = run(words);
    setrlimit(RLIMIT_FSIZE, &before);
    signal(SIGXFSZ, handler);
    return outcome;
  };
  const Outcome outcome = limited({"tune", "--rigor", "quick", kText});
  EXPECT_EQ(outcome.exit_code, 1) << outcome.err;
  EXPECT_THAT(outcome.out, HasSubstr("winner"));
  EXPECT_THAT(outcome.out, HasSubstr("it is not stored, and plans do not find it"));
  EXPECT_THAT(outcome.out, HasSubstr("no space is left"));
  const Outcome json = limited({"tune", "--json", "--rigor", "quick", kText});
  EXPECT_EQ(json.exit_code, 1) << json.err;
  const Json result = Json::parse(json.out).at("results").at(0);
  EXPECT_NE(result.at("winner"), "");
  EXPECT_THAT(result.at("not_kept").get<std::string>(), HasSubstr("no space is left"));
  const Outcome enough = run({"tune", "--json", "--rigor", "quick", kText});
  EXPECT_EQ(enough.exit_code, 0) << enough.err;
  EXPECT_EQ(Json::parse(enough.out).at("results").at(0).at("not_kept"), "");
}

TEST_F(ProgramOnFakeGpu, AProblemThatDoesNotFitDoesNotEndTheOthers) {
  const std::string path = folder_.write(
      "problems.txt",
      "fwd fp16 batch=100000 num_heads=64 seqlen=65536 head_dim=128\n" + std::string(kText) + "\n");
  const Outcome outcome = run({"tune", "--json", "--rigor", "quick", "--file", path});
  EXPECT_EQ(outcome.exit_code, 3) << outcome.err;
  const Json results = Json::parse(outcome.out).at("results");
  EXPECT_THAT(results[0].at("error").at("message").get<std::string>(), HasSubstr("GPU memory"));
  EXPECT_NE(results[1].at("winner"), "");
}

TEST_F(ProgramOnFakeDriver, AGpuThatIsNotThere) {
  const Outcome outcome = run({"run", "--random", "1", "--gpu", "7", "fwd fp16 seqlen=64"});
  EXPECT_EQ(outcome.exit_code, 2) << outcome.err;
  EXPECT_THAT(outcome.err, HasSubstr("7"));
}

TEST_F(ProgramOnFakeDriver, AnAllocationThatFailsSaysHowMuch) {
  const Outcome outcome = run(
      {"run", "--random", "1", "fwd fp16 num_heads=2 seqlen=16384 head_dim=32"});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("allocate 2097152 bytes"));
}

/// The driver waits for a kernel before it frees memory, loads code or lets go of a context. The
/// fake one ends the program where it would, with a code of its own.
TEST_F(ProgramOnFakeDriver, AKernelWithoutEndDoesNotKeepTheProgram) {
  const auto hangs = [&](const char* verb, const char* launch) {
    const Outcome outcome = run_program(
        {verb, "--rigor", "quick", "fwd bf16 num_heads=8 seqlen=1024 head_dim=128"},
        {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
         {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
         {"ATTNFORGE_CACHE", folder_.file(std::string(verb) + ".db")},
         {"ATTNFORGE_LOG", "off"},
         {"ATTNFORGE_WORKER", "in_process"},
         {"FAKE_GPU_LAUNCH_US", "1"},
         {"FAKE_GPU_HANGS_AT", launch}});
    EXPECT_THAT(outcome.exit_code, testing::AnyOf(1, 3)) << verb << ": " << outcome.err;
    EXPECT_THAT(outcome.out + outcome.err, HasSubstr("did not end within")) << verb;
  };
  std::thread tune(hangs, "tune", "20");  // both at once: they wait
  hangs("bench", "200");
  tune.join();
}

}  // namespace
}  // namespace attnforge::cli
