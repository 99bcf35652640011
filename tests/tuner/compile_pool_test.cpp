#include "tuner/compile_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <stdexcept>
#include <thread>

namespace attnforge {
namespace {

Compiled named(std::size_t index, const std::atomic<bool>& = {}) {
  Compiled result;
  result.source.name = std::to_string(index);
  return result;
}

TEST(CompilePool, DoesEachJobOnceAndReportsOnTheCallersThread) {
  CompilePool pool(4);
  const std::thread::id caller = std::this_thread::get_id();
  for (int repeat = 0; repeat < 3; ++repeat) {
    std::atomic<int> calls{0};
    std::set<std::size_t> seen;
    pool.run(
        100,
        [&](std::size_t index, const std::atomic<bool>&) {
          ++calls;
          return named(index);
        },
        [] { return true; },
        [&](std::size_t index, Compiled&& compiled) {
          EXPECT_EQ(std::this_thread::get_id(), caller);
          EXPECT_EQ(compiled.source.name, std::to_string(index));
          seen.insert(index);
        });
    EXPECT_EQ(calls, 100);
    EXPECT_EQ(seen.size(), 100u);
  }
}

TEST(CompilePool, NothingToDo) {
  CompilePool pool(0);
  pool.run(
      0, named, [] { return true; }, [](std::size_t, Compiled&&) { FAIL(); });
}

TEST(CompilePool, StopsWithoutWaitingForJobsInFlight) {
  std::atomic<int> started{0};
  std::atomic<bool> finish{false};
  {
    CompilePool pool(2);
    int reported = 0;
    // Jobs that only end when the test says so: if run() waited for them, it would not return.
    pool.run(
        50,
        [&](std::size_t index, const std::atomic<bool>&) {
          ++started;
          while (!finish) std::this_thread::yield();
          return named(index);
        },
        [&] { return started < 2; }, [&](std::size_t, Compiled&&) { ++reported; });
    EXPECT_EQ(reported, 0);
    EXPECT_EQ(started, 2);
    finish = true;
  }
  EXPECT_EQ(started, 2) << "a stopped run starts nothing more";
}

TEST(CompilePool, WhatOnDoneThrowsEndsTheRun) {
  CompilePool pool(2);
  EXPECT_THROW(pool.run(
                   20, named, [] { return true; },
                   [](std::size_t, Compiled&&) { throw std::runtime_error("out of memory"); }),
               std::runtime_error);
  int reported = 0;
  pool.run(
      5, named, [] { return true; }, [&](std::size_t, Compiled&&) { ++reported; });
  EXPECT_EQ(reported, 5);
}

}  // namespace
}  // namespace attnforge
