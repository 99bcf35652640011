// hand_out_test.cpp - problems of a job's processes, with a clock that the test moves.
#include "cli/job/hand_out.h"

#include <gtest/gtest.h>

namespace attnforge::cli {
namespace {

TEST(HandOut, EachProblemIsHandedOutOnce) {
  HandOut hand_out(3, 2, 0);
  EXPECT_EQ(hand_out.next(0), 0u);
  EXPECT_EQ(hand_out.next(1), 1u);
  EXPECT_EQ(hand_out.next(1), 2u);
  EXPECT_EQ(hand_out.next(0), std::nullopt);
  for (const std::size_t problem : {2, 0, 1}) {
    EXPECT_FALSE(hand_out.finished());
    EXPECT_TRUE(hand_out.done(1, problem));
  }
  EXPECT_TRUE(hand_out.finished());
  EXPECT_TRUE(HandOut(0, 1, 0).finished());
}

TEST(HandOut, WhatASilentProcessHadGoesToTheNextThatAsks) {
  HandOut hand_out(3, 3, 0);
  for (const int rank : {0, 1, 2}) hand_out.next(rank);
  hand_out.heard(2, 5);
  EXPECT_TRUE(hand_out.lose_silent(kSilentSeconds).empty());
  EXPECT_EQ(hand_out.lose_silent(kSilentSeconds + 1), std::vector<int>{1});
  EXPECT_TRUE(hand_out.lost(1));
  EXPECT_TRUE(hand_out.lose_silent(kSilentSeconds + 2).empty()) << "it is lost once";
  EXPECT_EQ(hand_out.next(2), 1u);
}

TEST(HandOut, LateResultOfOneThoughtLostCounts) {
  HandOut hand_out(1, 3, 0);
  EXPECT_EQ(hand_out.next(1), 0u);
  hand_out.lose_silent(kSilentSeconds + 1);
  hand_out.heard(1, 8);
  EXPECT_FALSE(hand_out.lost(1));
  EXPECT_TRUE(hand_out.done(1, 0));
  EXPECT_TRUE(hand_out.finished());
  EXPECT_EQ(hand_out.next(2), std::nullopt) << "it is not tuned twice";
  EXPECT_FALSE(hand_out.done(2, 0)) << "nor counted twice";
}

TEST(HandOut, ProblemThatTakesEachProcessWithItIsGivenUp) {
  HandOut hand_out(2, 3, 0);
  EXPECT_EQ(hand_out.next(1), 0u);
  hand_out.lose_silent(10);
  hand_out.heard(2, 10);
  EXPECT_EQ(hand_out.next(2), 0u);
  hand_out.lose_silent(20);
  EXPECT_TRUE(hand_out.given_up(0));
  EXPECT_EQ(hand_out.next(0), 1u);
  EXPECT_TRUE(hand_out.done(0, 1));
  EXPECT_TRUE(hand_out.finished());
}

TEST(HandOut, TheFirstProcessIsNeverLost) {
  HandOut hand_out(1, 2, 0);
  hand_out.next(0);
  hand_out.lose_silent(1000);
  EXPECT_FALSE(hand_out.lost(0));
  EXPECT_EQ(hand_out.next(1), std::nullopt);
}

}  // namespace
}  // namespace attnforge::cli
