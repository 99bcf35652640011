// lanes_test.cpp - problems of the searches that run at a time in one process.
#include "cli/job/lanes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

namespace attnforge::cli {
namespace {

/// The first two have one bucket.
std::vector<Problem> three_problems() {
  return {parse_problem("fwd bf16 seqlen=4090 head_dim=64"),
          parse_problem("fwd bf16 seqlen=4096 head_dim=64"),
          parse_problem("fwd bf16 seqlen=64 head_dim=64")};
}

TEST(Lanes, ProblemsOfOneBucketAreNotInWorkAtOnce) {
  Lanes lanes(three_problems(), 2);
  EXPECT_EQ(lanes.next(0), 0u);
  EXPECT_EQ(lanes.next(1), 2u) << "problem 1 would wait for the winner of problem 0";
  auto other = std::async(std::launch::async, [&] { return lanes.next(1); });
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  const std::vector after{lanes.next(0), other.get()};  // either may be the first
  EXPECT_THAT(after, testing::UnorderedElementsAre(1u, std::nullopt)) << "one has nothing to do";
  EXPECT_EQ(lanes.next(0), std::nullopt);
}

TEST(Lanes, WhatALaneLeftBehindIsForTheOthers) {
  Lanes lanes(three_problems(), 2);
  EXPECT_EQ(lanes.next(0), 0u);
  EXPECT_EQ(lanes.next(1), 2u);
  auto other = std::async(std::launch::async, [&] { return lanes.next(1); });
  lanes.leave(0);  // its GPU was lost
  EXPECT_EQ(other.get(), 1u);
}

}  // namespace
}  // namespace attnforge::cli
