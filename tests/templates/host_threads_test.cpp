// host_threads_test.cpp - threads of device code on the host: who waits sees what others wrote, and
// who forgets to wait does not.
#include "tests/support/host_threads.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <vector>

#include "attnforge/error.h"

namespace attnforge::test {
namespace {

constexpr unsigned kThreads = 64;

TEST(HostThreads, SeeWhatWasWrittenBeforeTheyMet) {
  HostBarrier barrier(kThreads);
  std::vector<unsigned> written(kThreads), sums(kThreads);
  run_threads(kThreads, [&](unsigned thread) {
    for (unsigned round = 1; round <= 3; ++round) {
      written[thread] = round;
      barrier.arrive_and_wait();
      for (const unsigned each : written) sums[thread] += each;
      barrier.arrive_and_wait();
    }
  });
  EXPECT_THAT(sums, testing::Each(kThreads * (1 + 2 + 3)));
}

#ifndef ATTNFORGE_THREADS_OF_SYSTEM

/// Of a neighbour's value, whichever neighbour it is.
TEST(HostThreads, MissWhatOthersHaveYetToWrite) {
  for (const unsigned distance : {1u, kThreads - 1}) {
    HostBarrier barrier(kThreads);
    std::vector<int> written(kThreads);
    int missed = 0;
    run_threads(kThreads, [&](unsigned thread) {
      for (int round = 1; round <= 2; ++round) {
        written[thread] = round;
        missed += written[(thread + distance) % kThreads] < round;  // a barrier is missing here
        barrier.arrive_and_wait();
      }
    });
    EXPECT_GT(missed, static_cast<int>(kThreads) / 2) << distance;
  }
}

TEST(HostThreads, ThatWaitForOneThatDoesNotComeAreAnError) {
  HostBarrier barrier(kThreads);
  try {
    run_threads(kThreads, [&](unsigned thread) {
      if (thread != 7) barrier.arrive_and_wait();
    });
    FAIL() << "it ended";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("wait for one that does not come"));
  }
}

#endif

}  // namespace
}  // namespace attnforge::test
