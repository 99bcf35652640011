// program_gpu_test.cpp - the main job on a real GPU: tune, find the winner in another process, run
// on files, check.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <nlohmann/json.hpp>
#include <thread>

#include "attnforge/device.h"
#include "attnforge/host_tensors.h"
#include "cli/files/npy.h"
#include "tests/cli/program/program.h"
#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

class ProgramOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (enumerate_devices().empty()) GTEST_SKIP() << "no GPU";
  }
  Environment environment() const { return {{"ATTNFORGE_CACHE", folder_.file("cache.db")}}; }
  Outcome run(const std::vector<std::string>& arguments) {
    return run_program(arguments, environment());
  }

  const TemporaryFolder folder_;
};

const std::string kProblem = "fwd bf16 batch=1 num_heads=8:2 seqlen=512 head_dim=128 causal";

TEST_F(ProgramOnGpu, TuneThenAnotherProcessFindsTheWinnerAndRunsItOnFiles) {
  const Outcome tuned = run({"tune", kProblem, "--rigor", "quick", "--json"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  const Json result = Json::parse(tuned.out).at("results")[0];
  EXPECT_GT(result.at("winner_us").get<double>(), 0);
  EXPECT_GT(result.at("tried").get<int>(), 0);
  EXPECT_LE(result.at("winner_us").get<double>(), result.at("untuned_us").get<double>() * 1.001);

  const Problem problem = parse_problem(kProblem);
  const HostTensors host = random_host_tensors(problem, 7);
  const std::int64_t q_shape[] = {1, 512, 8, 128}, kv_shape[] = {1, 512, 2, 128};
  const std::string q = folder_.file("q.npy"), k = folder_.file("k.npy"), v = folder_.file("v.npy");
  const std::string o = folder_.file("o.npy"), lse = folder_.file("lse.npy");
  write_npy(q, "<V2", q_shape, host.q);
  write_npy(k, "<V2", kv_shape, host.k);
  write_npy(v, "<V2", kv_shape, host.v);

  const Outcome outcome = run({"run", "--q", q, "--k", k, "--v", v, "--o", o, "--policy",
                               "cached_only", "causal", "--check", "--json"});
  ASSERT_EQ(outcome.exit_code, 0) << outcome.err << outcome.out;
  const Json json = Json::parse(outcome.out);
  EXPECT_EQ(json.at("provenance"), "measured");
  EXPECT_EQ(json.at("config"), result.at("winner"));
  EXPECT_TRUE(json.at("check").at("ok").get<bool>());
  EXPECT_GT(json.at("check").at("cosine_similarity").get<double>(), 0.999);
  const NpyArray written = read_npy(o);
  EXPECT_EQ(written.header.descr, "<V2");
  EXPECT_EQ(written.header.shape, (std::vector<std::int64_t>{1, 512, 8, 128}));

  const Outcome with_lse = run({"run", "--q", q, "--k", k, "--v", v, "--o", o, "--lse", lse,
                                "--o-fp32", "causal", "--check"});
  EXPECT_EQ(with_lse.exit_code, 0) << with_lse.err << with_lse.out;
  EXPECT_THAT(with_lse.out, HasSubstr("check         ok"));
  EXPECT_EQ(read_npy(o).header.descr, "<f4");
  EXPECT_EQ(read_npy(lse).header.shape, (std::vector<std::int64_t>{1, 8, 512}));

  const Json again = Json::parse(run({"tune", kProblem, "--rigor", "quick", "--json"}).out)
                         .at("results")[0];
  EXPECT_EQ(again.at("winner"), result.at("winner"));
  EXPECT_GT(again.at("reused").get<int>(), 0) << "nothing is measured twice";
}

TEST_F(ProgramOnGpu, CachedOnlyWithoutAWinnerIsRefused) {
  const Outcome outcome = run({"run", "--random", "1", "--policy", "cached_only", kProblem});
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_THAT(outcome.err, HasSubstr("seqlen_q=512"));
}

TEST_F(ProgramOnGpu, BenchTimesFamiliesAsCsvAndJson) {
  const Outcome json_run = run({"bench", "fwd fp16 seqlen=256 head_dim=64",
                                "fwd fp16 seqlen=512 head_dim=64", "--families",
                                "fwd_mma_sm80,fwd_naive", "--seconds", "0.1", "--json"});
  ASSERT_EQ(json_run.exit_code, 0) << json_run.err;
  const Json results = Json::parse(json_run.out).at("results");
  ASSERT_EQ(results.size(), 4u);
  for (const Json& row : results) {
    EXPECT_GT(row.at("time_us").get<double>(), 0);
    EXPECT_GT(row.at("tflops_per_s").get<double>(), 0);
    EXPECT_GE(row.at("samples").get<int>(), 20);
  }
  EXPECT_THAT(results[1].at("config").get<std::string>(), testing::StartsWith("fwd_naive"));
  const Outcome csv_run = run(
      {"bench", "fwd fp16 seqlen=256 head_dim=64", "--seconds", "0.1", "--csv"});
  EXPECT_EQ(std::count(csv_run.out.begin(), csv_run.out.end(), '\n'), 2);
}

TEST_F(ProgramOnGpu, CtrlCKeepsWhatIsDone) {
  const std::string out = folder_.file("out"), err = folder_.file("err");
  const std::vector<std::string> arguments = {
      "tune", "--rigor", "exhaustive", "--json",
      "fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal"};
  const pid_t process = start_program(arguments, environment(), out, err);
  // The first line of progress comes after a second.
  for (int i = 0; i < 600 && read_file(err).empty(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  std::this_thread::sleep_for(std::chrono::seconds(3));
  kill(process, SIGINT);
  EXPECT_EQ(exit_code_of(process), 130);
  EXPECT_THAT(read_file(err), HasSubstr("what is done is kept"));
  const Json json = Json::parse(read_file(out));
  EXPECT_TRUE(json.at("interrupted").get<bool>());
  EXPECT_FALSE(json.at("results")[0].at("complete").get<bool>());
  const Json stats = Json::parse(run({"cache", "stats", "--json"}).out);
  EXPECT_GE(stats.at("tries").get<int>(), json.at("results")[0].at("tried").get<int>());
}

}  // namespace
}  // namespace attnforge::cli
