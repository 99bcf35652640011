// processes_test.cpp - several processes on one file, and processes that are killed.
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <thread>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

class ProcessesTest : public CacheTest {};

TEST_F(ProcessesTest, WritersLoseNoRowAndAreNeverToldThatItIsLocked) {
  constexpr int kWriters = 4, kBatches = 40, kBatch = 5;
  std::vector<pid_t> children;
  for (int writer = 0; writer < kWriters; ++writer)
    children.push_back(start_child([&, writer] {
      std::vector<std::string> said;
      Cache cache(path(), false,
                  [&](LogLevel, std::string_view message) { said.emplace_back(message); });
      for (int batch = 0; batch < kBatches; ++batch) {
        std::vector<Try> tries;
        for (int i = 0; i < kBatch; ++i)
          tries.push_back(good_try(10'000 * writer + kBatch * batch + i, 10));
        cache.put(tries);
        if (!cache.best(kProblem, current(), digest_of)) return false;
        if (batch % 8 == 0) cache.put_cubin(cubin(fmt::format("d{}", writer)), "source", "f");
      }
      for (const std::string& message : said) std::fprintf(stderr, "said: %s\n", message.c_str());
      return said.empty();
    }));
  for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
  Cache cache(path(), false, log());
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(kWriters * kBatches * kBatch));
  EXPECT_EQ(cache_stats(path()).cubins, kWriters);
  EXPECT_EQ(raw().text("PRAGMA integrity_check"), "ok");
}

// A child puts batches of 3 and reports each one after put() has returned, until it is killed.
TEST_F(ProcessesTest, AKilledWriterLosesAtMostWhatItDidNotReport) {
  constexpr int kRounds = 12, kBatch = 3;
  std::set<int> reported;
  for (int round = 0; round < kRounds; ++round) {
    int pipe_ends[2];
    ASSERT_EQ(pipe(pipe_ends), 0);
    const pid_t child = start_child([&] {
      close(pipe_ends[0]);
      Cache cache(path());
      for (int batch = 1000 * round;; ++batch) {
        std::vector<Try> tries;
        for (int i = 0; i < kBatch; ++i) {
          tries.push_back(good_try(kBatch * batch + i, 10));
          tries.back().measurement.detail = std::string(3000, 'x');
        }
        cache.put(tries);
        if (write(pipe_ends[1], &batch, sizeof batch) != sizeof batch) return false;
      }
    });
    close(pipe_ends[1]);
    int batch = 0;
    for (int i = 0; i < 2 + 3 * round && read(pipe_ends[0], &batch, sizeof batch) == sizeof batch;
         ++i)
      reported.insert(batch);
    std::this_thread::sleep_for(
        std::chrono::microseconds(700 * round));  // into the middle of another transaction
    kill(child, SIGKILL);
    while (read(pipe_ends[0], &batch, sizeof batch) == sizeof batch) reported.insert(batch);
    EXPECT_EQ(wait_for(child), 128 + SIGKILL);
    close(pipe_ends[0]);

    Cache cache(path(), false, log());
    std::set<std::string> stored;
    for (const Try& t : cache.tries(kProblem, kH200)) stored.insert(t.config);
    for (const int known : reported)
      for (int i = 0; i < kBatch; ++i)
        EXPECT_TRUE(stored.count(config(kBatch * known + i))) << known;
    EXPECT_EQ(stored.size() % kBatch, 0u) << "half a batch";
    EXPECT_LE(stored.size(), kBatch * (reported.size() + static_cast<std::size_t>(round) + 1));
    EXPECT_EQ(raw().text("PRAGMA integrity_check"), "ok");
  }
  EXPECT_GT(reported.size(), 2u * kRounds);
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(ProcessesTest, ManyProcessesCreateTheFileTogether) {
  for (int round = 0; round < 5; ++round) {
    const std::string file = folder_.path("round" + std::to_string(round) + "/attnforge.db");
    std::vector<pid_t> children;
    for (int i = 0; i < 6; ++i)
      children.push_back(start_child([&, i] {
        std::vector<std::string> said;
        Cache cache(file, false,
                    [&](LogLevel, std::string_view message) { said.emplace_back(message); });
        cache.put({good_try(i, 10)});
        for (const std::string& message : said) std::fprintf(stderr, "said: %s\n", message.c_str());
        return said.empty() && cache.path() == file;
      }));
    for (const pid_t child : children) EXPECT_EQ(wait_for(child), 0);
    EXPECT_THAT(Cache(file).tries(kProblem, kH200), SizeIs(6));
  }
}

}  // namespace
}  // namespace attnforge::testing
