#include "cli/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace attnforge::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TuneJob cut_job() {
  TuneJob job;
  job.problem = parse_problem("fwd bf16 num_heads=8 seqlen=1024 head_dim=128");
  job.result.emplace();
  job.result->problem = job.problem;
  job.result->winner = job.result->untuned = "fwd_test block_m=64";
  job.result->winner_us = job.result->untuned_us = 10;
  job.result->tried = 20;
  job.result->space = 144;
  job.result->left = 124;
  job.result->left_s = 30.2;
  return job;
}

TEST(TuneReport, SearchThatWasCutSaysWhatIsLeftAndHowLongItWouldTake) {
  TuneJob job = cut_job();
  EXPECT_THAT(report(job, 0, true), HasSubstr("stopped early, 124 not tried (about 31 s)"));
  job.result->complete = true;
  EXPECT_THAT(report(job, 0, true), Not(HasSubstr("stopped early")));
}

TEST(TuneReport, SearchWithoutTimeForTheModelsChoiceSaysSo) {
  TuneJob job = cut_job();
  job.result->winner.clear();
  job.result->tried = 0;
  EXPECT_THAT(report(job, 0, true), HasSubstr("before the model's choice was compiled"));
  job.result->failed = 1;
  EXPECT_THAT(report(job, 0, true), HasSubstr("no config worked"));
}

}  // namespace
}  // namespace attnforge::cli
