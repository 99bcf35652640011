// program_pictures_test.cpp - pictures of stored sweeps and tries, with gnuplot and without.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>

#include "tests/cli/program/program.h"
#include "tests/cli/program/program_fixture.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

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
                  {"device_class", "NVIDIA H200 sm_90a sms=132"},
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

}  // namespace
}  // namespace attnforge::cli
