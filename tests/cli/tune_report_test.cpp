#include "cli/output/tune_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <new>
#include <stdexcept>

#include "cli/verbs/memory_check.h"

namespace attnforge::cli {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
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

TEST(TuneReport, WhatIsNotStoredIsSaidBesideTheWinner) {
  TuneJob job = cut_job();
  EXPECT_THAT(report(job, 0, true), Not(HasSubstr("not stored")));
  job.result->not_kept = "the disk is full";
  EXPECT_THAT(report(job, 0, true), AllOf(HasSubstr("fwd_test block_m=64"), HasSubstr("not stored"),
                                          HasSubstr("the disk is full")));
}

TEST(TuneReport, FailuresHaveTheirOwnWords) {
  const auto noted = [](auto exception) {
    TuneJob job = cut_job();
    job.result.reset();
    try {
      throw exception;
    } catch (const std::exception&) {
      note_failure(job.error, job.code, "use less");
    }
    return job;
  };
  const TuneJob memory = noted(std::bad_alloc());
  EXPECT_THAT(memory.error, HasSubstr("not enough host memory"));
  EXPECT_EQ(memory.code, ErrorCode::kUnsupported);
  EXPECT_THAT(report(memory, 0, true), HasSubstr("not enough host memory"));
  const TuneJob lost = noted(Error(ErrorCode::kCuda, "the GPU is lost"));
  EXPECT_EQ(lost.error, "the GPU is lost");
  EXPECT_EQ(lost.code, ErrorCode::kCuda);
  EXPECT_EQ(noted(std::runtime_error("a bug")).code, ErrorCode::kInternal);
}

TEST(TuneReport, WorkThatNobodyCanCountHasNoThroughput) {
  TuneJob job = cut_job();
  EXPECT_THAT(report(job, 0, true), Not(HasSubstr("no TFLOP/s")));
  job.problem.mask = "[&] { return k % 2 == 0; }()";
  job.result->problem = job.problem;
  const std::string text = report(job, 0, true);
  EXPECT_THAT(text, HasSubstr("no TFLOP/s: its mask text is not counted: it has \"[\""));
  EXPECT_THAT(text, ContainsRegex("winner +10.00 +- "));
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
