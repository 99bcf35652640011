// parallel_test.cpp - every piece once, whatever the number of threads; exceptions arrive; how many
// threads there may be.
#include "reference/parallel.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <stdexcept>
#include <vector>

#include "reference/usable_cores.h"

namespace attnforge {
namespace {

TEST(ParallelFor, DoesEveryPieceOnce) {
  for (const int threads : {0, 1, 2, 7}) {
    for (const int count : {0, 1, 3, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<std::size_t>(count));
      parallel_for(count, threads, [&](std::int64_t i) { ++done[static_cast<std::size_t>(i)]; });
      for (const auto& times : done) EXPECT_EQ(times.load(), 1);
    }
  }
}

TEST(ParallelFor, ThrowsOnWhatAPieceThrew) {
  for (const int threads : {1, 3}) {
    std::atomic<int> done{0};
    const auto work = [&](std::int64_t i) {
      if (i == 5) throw std::runtime_error("piece 5");
      ++done;
    };
    EXPECT_THROW(parallel_for(1000000, threads, work), std::runtime_error);
    EXPECT_LT(done.load(), 1000000);
  }
}

TEST(UsableCores, AreThoseOfTheQuotaAndTheAffinity) {
  EXPECT_EQ(cores_of_quota("150000 100000\n"), 1.5);
  EXPECT_EQ(cores_of_quota("1600000 100000"), 16);
  for (const char* any : {"max 100000\n", "-1 100000", "", "0 0", "words"})
    EXPECT_EQ(cores_of_quota(any), 0) << any;

  // A search that counts cores that it may not use has all its compiles late.
  cpu_set_t before, one;
  ASSERT_EQ(sched_getaffinity(0, sizeof(before), &before), 0);
  CPU_ZERO(&one);
  for (int core = 0; core < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++core)
    if (CPU_ISSET(core, &before)) CPU_SET(core, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
  EXPECT_EQ(usable_cores(), 1);
  sched_setaffinity(0, sizeof(before), &before);
}

}  // namespace
}  // namespace attnforge
