// program_interrupt_test.cpp - Ctrl-C on a GPU and a compiler that only pass the time: the program
// ends soon, with the code that docs/CLI.md promises, and keeps what it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "tests/cli/program/program.h"
#include "tests/cli/program/program_fixture.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// Far less than what the program had to do without the signal, far more than what it takes to stop.
constexpr double kSoonSeconds = 15;

class Interrupt : public Program {
 protected:
  struct Ended {
    Outcome outcome;
    double seconds = 0;  // from the signal to the end
  };

  /// Sends SIGINT as soon as the database holds tries.
  Ended interrupted_in_the_middle(const std::vector<std::string>& arguments) {
    const Environment environment = {{"LD_LIBRARY_PATH", ATTNFORGE_FAKE_DRIVER_DIR},
                                     {"ATTNFORGE_NVRTC", ATTNFORGE_FAKE_NVRTC},
                                     {"ATTNFORGE_CACHE", database()},
                                     {"ATTNFORGE_LOG", "info"},
                                     {"ATTNFORGE_WORKER", "in_process"},
                                     {"FAKE_GPU_LAUNCH_US", "5000"},
                                     {"FAKE_NVRTC_COMPILE_MS", "100"}};
    const std::string out = folder_.file("out"), err = folder_.file("err");
    const pid_t process = start_program(arguments, environment, out, err);
    const auto start = Clock::now();
    const auto since = [](Clock::time_point begin) {
      return std::chrono::duration<double>(Clock::now() - begin).count();
    };
    while (!under_way() && since(start) < 60 && kill(process, 0) == 0)
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    const auto signal = Clock::now();
    kill(process, SIGINT);
    const int code = exit_code_of(process);
    return {{code, read_file(out), read_file(err)}, since(signal)};
  }

  /// Whether anything was stored yet: code of a ranking, tries of a tuning.
  bool under_way() const {
    try {
      const CacheStats stats = cache_stats(database());
      return stats.tries > 0 || stats.cubins > 0;
    } catch (const Error&) {
      return false;  // not there yet
    }
  }
};

const char* const kProblem = "fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal";

TEST_F(Interrupt, OfTuneForArchsKeepsWhatWasCompiled) {
  const Ended ended = interrupted_in_the_middle({"tune", "--arch", "sm_90", "--candidates",
                                                 "100000", "--json", kProblem,
                                                 "fwd fp16 seqlen=1024 head_dim=64"});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(ended.outcome.err, HasSubstr("interrupted; what was compiled is kept"));
  const Json report = Json::parse(ended.outcome.out);
  EXPECT_EQ(report.at("interrupted"), true);
  ASSERT_EQ(report.at("results").size(), 1u) << "the second problem is not begun";
  EXPECT_EQ(cache_stats(database()).tries,
            static_cast<int>(report.at("results")[0].at("ranked").size()));
  EXPECT_GT(cache_stats(database()).cubins, 0);
}

TEST_F(Interrupt, OfAFirstRunKeepsWhatWasMeasured) {
  const Ended ended = interrupted_in_the_middle(
      {"run", "--policy", "first_run", "--time-limit", "300", "--random", "1",
       "fwd bf16 num_heads=4 seqlen=512 head_dim=128 causal"});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(ended.outcome.err, HasSubstr("interrupted; what was measured is kept"));
  EXPECT_EQ(ended.outcome.out, "") << "it did not run";
  EXPECT_GT(cache_stats(database()).tries, 0);
}

TEST_F(Interrupt, OfTuneKeepsWhatWasMeasured) {
  const Ended ended = interrupted_in_the_middle(
      {"tune", "--rigor", "exhaustive", "--json", kProblem, "fwd fp16 seqlen=1024 head_dim=64"});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_EQ(Json::parse(ended.outcome.out).at("interrupted"), true);
  EXPECT_GT(cache_stats(database()).tries, 0);
}

TEST_F(Interrupt, OfTuneWithTooFewTriesForAPictureIsNoWrongCommandLine) {
  // Neither field has two values among what was measured.
  const Ended ended = interrupted_in_the_middle({"tune", "--rigor", "exhaustive", "--plot",
                                                 folder_.file("pictures"), "--axes",
                                                 "head_dim_warps,pad_head_dim", kProblem});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_THAT(ended.outcome.err, HasSubstr("interrupted, and nothing was drawn: no landscape"));
}

TEST_F(Interrupt, OfASweepEndsALongMeasurementAndKeepsItsRow) {
  const std::string csv = folder_.file("rows.csv");
  const Ended ended = interrupted_in_the_middle({"bench", "--seconds", "300", "--max-samples",
                                                 "1000000", "--out", csv,
                                                 "fwd bf16 num_heads=4 seqlen=512,1024"});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_LT(ended.seconds, kSoonSeconds);
  EXPECT_THAT(read_file(csv), HasSubstr("\nok,"));
}

TEST_F(Interrupt, OfASweepWithTooFewRowsForAPictureIsNoWrongCommandLine) {
  const Ended ended = interrupted_in_the_middle({"bench", "--seconds", "300", "--max-samples",
                                                 "1000000", "--plot", folder_.file("pictures"),
                                                 "fwd bf16 num_heads=4 seqlen=512,1024"});
  EXPECT_EQ(ended.outcome.exit_code, 130) << ended.outcome.err;
  EXPECT_THAT(ended.outcome.err, HasSubstr("interrupted, and nothing was drawn: no figure"));
  EXPECT_THAT(ended.outcome.out, HasSubstr("seqlen_q=512")) << "the row it has is shown";
}

}  // namespace
}  // namespace attnforge::cli
