// parallel_test.cpp - every piece once, whatever the number of threads; exceptions arrive.
#include "reference/parallel.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

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

}  // namespace
}  // namespace attnforge
