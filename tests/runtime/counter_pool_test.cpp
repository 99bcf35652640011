// counter_pool_test.cpp - whose counters are whose, on the fake driver: streams whose number comes
// back, streams of threads, captures, thousands of streams.
#include "runtime/counter_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "runtime/device.h"
#include "runtime/driver.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;

constexpr std::size_t kSlabBytes = CounterPool::kSetsPerSlab * kCounterBytes;

/// What a kernel does to its counters when it ends.
void end_runs(void* set, unsigned runs) { static_cast<std::uint32_t*>(set)[kRunsCounter] += runs; }

/// More streams than have sets at once, each with a run that has ended. Their sets.
std::set<void*> use_many_streams(CounterPool& pool, std::size_t count) {
  std::set<void*> sets;
  for (std::size_t i = 0; i < count; ++i) {
    const Stream stream;
    void* const set = pool.of(stream.get(), 1);
    end_runs(set, 1);
    sets.insert(set);
  }
  return sets;
}

class CounterPoolTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
  }

  PrimaryContext primary_{0};
  const ScopedContext context_{primary_};
};

/// Takes `stream` into a capture while it lives.
struct Capture {
  CUstream stream;
  explicit Capture(CUstream captured) : stream(captured) {
    driver().cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL);
  }
  ~Capture() {
    CUgraph graph = nullptr;
    driver().cuStreamEndCapture(stream, &graph);
  }
};

TEST_F(CounterPoolTest, StreamKeepsItsSetWhichIsZerosAndAligned) {
  CounterPool pool;
  EXPECT_EQ(pool.device_bytes(), 0u);
  pool.reserve();
  EXPECT_EQ(pool.device_bytes(), kSlabBytes);
  const Stream first, second;
  void* const set = pool.of(first.get(), 1);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(set) % kCounterBytes, 0u);
  const auto* words = static_cast<const std::uint32_t*>(set);
  EXPECT_TRUE(std::all_of(words, words + kCounterBytes / 4, [](auto word) { return word == 0; }));
  EXPECT_NE(pool.of(second.get(), 1), set);
  EXPECT_EQ(pool.of(first.get(), 1), set);
  EXPECT_NE(pool.of(nullptr, 1), set);
  EXPECT_EQ(pool.of(nullptr, 1), pool.of(CU_STREAM_LEGACY, 1));
  EXPECT_EQ(pool.device_bytes(), kSlabBytes);
}

TEST_F(CounterPoolTest, NewStreamWithTheNumberOfADestroyedOneHasASetOfItsOwn) {
  CounterPool pool;
  std::set<void*> sets;
  CUstream number = nullptr;
  for (int i = 0; i < 100; ++i) {
    const Stream stream;  // its run goes on when the stream is gone
    if (i == 0) number = stream.get();
    EXPECT_EQ(stream.get(), number);
    EXPECT_TRUE(sets.insert(pool.of(stream.get(), 1)).second) << "stream " << i;
  }
}

TEST_F(CounterPoolTest, HandleTwoIsAnotherStreamInEachThread) {
  CounterPool pool;
  std::vector<void*> sets(4);
  std::vector<std::thread> threads;
  for (void*& set : sets) {
    threads.emplace_back([&] {
      const ScopedContext context(primary_);
      set = pool.of(CU_STREAM_PER_THREAD, 1);
      EXPECT_EQ(pool.of(CU_STREAM_PER_THREAD, 1), set);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(std::set<void*>(sets.begin(), sets.end()).size(), sets.size());
}

TEST_F(CounterPoolTest, CapturedLaunchesHaveSetsThatNeverComeBack) {
  CounterPool pool;
  const Stream stream;
  void* const eager = pool.of(stream.get(), 1);
  std::set<void*> captured;
  {
    const Capture capture(stream.get());
    for (int i = 0; i < 10; ++i) captured.insert(pool.of(stream.get(), 1));
  }
  EXPECT_EQ(captured.size(), 10u);
  EXPECT_EQ(captured.count(eager), 0u);
  EXPECT_EQ(pool.of(stream.get(), 1), eager);
  for (void* set : captured) end_runs(set, 1);
  for (void* set : use_many_streams(pool, 20000)) EXPECT_EQ(captured.count(set), 0u);
}

TEST_F(CounterPoolTest, StreamsThatComeAndGoTakeOneSlabHoweverMany) {
  CounterPool pool;
  use_many_streams(pool, 100000);
  EXPECT_EQ(pool.device_bytes(), kSlabBytes);
  EXPECT_EQ(fake_cuda().device_bytes(), kSlabBytes);
}

TEST_F(CounterPoolTest, SetOfAStreamWithWorkUnderWayIsNotGivenAway) {
  CounterPool pool;
  std::set<void*> busy;
  for (int i = 0; i < 10; ++i) {
    const Stream stream;
    void* const set = pool.of(stream.get(), 2);
    end_runs(set, 1);  // of two
    busy.insert(set);
  }
  for (void* set : use_many_streams(pool, 20000)) EXPECT_EQ(busy.count(set), 0u);
  for (void* set : busy) end_runs(set, 1);
  std::size_t reused = 0;
  for (void* set : use_many_streams(pool, 20000)) reused += busy.count(set);
  EXPECT_EQ(reused, busy.size()) << "a set whose runs have all ended comes back";
}

TEST_F(CounterPoolTest, StreamsThatAreAllBusyHaveASetEach) {
  CounterPool pool;
  std::set<void*> sets;
  constexpr std::size_t kStreams = 3 * CounterPool::kSetsPerSlab;
  for (std::size_t i = 0; i < kStreams; ++i) {
    const Stream stream;
    EXPECT_TRUE(sets.insert(pool.of(stream.get(), 1)).second);
  }
  EXPECT_EQ(pool.device_bytes(), 3 * kSlabBytes);
  for (void* set : sets) end_runs(set, 1);
  use_many_streams(pool, 50000);
  EXPECT_EQ(pool.device_bytes(), 3 * kSlabBytes) << "what is there is used again";
}

TEST_F(CounterPoolTest, NothingWaitsForALookAtTheCounters) {
  CounterPool pool;
  fake_cuda().slow_copies(true);
  use_many_streams(pool, CounterPool::kSetsPerSlab + 1);
  EXPECT_EQ(pool.device_bytes(), 2 * kSlabBytes);
  fake_cuda().slow_copies(false);
  use_many_streams(pool, 100000);
  EXPECT_EQ(pool.device_bytes(), 2 * kSlabBytes);
}

TEST_F(CounterPoolTest, GrowsWhileAStreamIsCaptured) {
  CounterPool pool;
  const Stream stream, other;
  const Capture capture(stream.get());
  CUdeviceptr refused = 0;
  ASSERT_EQ(driver().cuMemAlloc(&refused, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  std::set<void*> sets = {pool.of(other.get(), 1)};
  for (std::size_t i = 0; i < CounterPool::kSetsPerSlab; ++i) sets.insert(pool.of(stream.get(), 1));
  EXPECT_EQ(sets.size(), CounterPool::kSetsPerSlab + 1);
  EXPECT_EQ(pool.device_bytes(), 2 * kSlabBytes);
  EXPECT_EQ(driver().cuMemAlloc(&refused, 1), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
      << "the thread is left as it was";
}

TEST_F(CounterPoolTest, ThreadsThatShareAStreamShareItsSet) {
  CounterPool pool;
  const Stream shared;
  void* const set_of_shared = pool.of(shared.get(), 1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const ScopedContext context(primary_);
      for (int run = 0; run < 1000; ++run) {
        EXPECT_EQ(pool.of(shared.get(), 1), set_of_shared);
        const Stream mine;
        void* const set = pool.of(mine.get(), 1);
        EXPECT_NE(set, set_of_shared);
        static_cast<std::uint32_t*>(set)[0] = 1;  // a race for the sanitizer if it is shared
        static_cast<std::uint32_t*>(set)[0] = 0;
        end_runs(set, 1);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(CounterPoolTest, MemoryIsFreedAtTheEnd) {
  {
    CounterPool pool;
    use_many_streams(pool, 10);
    EXPECT_EQ(fake_cuda().device_bytes(), kSlabBytes);
  }
  EXPECT_EQ(fake_cuda().device_bytes(), 0u);
}

}  // namespace
}  // namespace attnforge
