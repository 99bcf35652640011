// put_test.cpp - storing tries: what is kept, what replaces what.
#include <cmath>
#include <limits>
#include <thread>

#include "attnforge/error.h"
#include "attnforge/version.h"
#include "cache/file/open.h"
#include "cache/rows.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PutTest : public CacheTest {};

TEST_F(PutTest, EveryFieldComesBackInAnotherConnection) {
  Try t = good_try(1, 123.5, Rigor::kExhaustive);
  t.measurement.detail = "remarks: caf\xC3\xA9";
  Cache(path(), false, log()).put({t});
  Cache cache(path(), false, log());
  const auto found = cache.tries(kProblem, kH200);
  ASSERT_THAT(found, SizeIs(1));
  const Try& f = found[0];
  EXPECT_EQ(f.problem, t.problem);
  EXPECT_EQ(f.device_class, t.device_class);
  EXPECT_EQ(f.config, t.config);
  EXPECT_EQ(f.family, t.family);
  EXPECT_EQ(f.digest, t.digest);
  EXPECT_EQ(f.rigor, t.rigor);
  EXPECT_EQ(f.estimate_us, t.estimate_us);
  EXPECT_EQ(f.estimated, t.estimated);
  EXPECT_EQ(f.measurement.status, t.measurement.status);
  EXPECT_EQ(f.measurement.time_us, t.measurement.time_us);
  EXPECT_EQ(f.measurement.noise, t.measurement.noise);
  EXPECT_EQ(f.measurement.samples, t.measurement.samples);
  EXPECT_EQ(f.measurement.max_error, t.measurement.max_error);
  EXPECT_EQ(f.measurement.clock_mhz, t.measurement.clock_mhz);
  EXPECT_EQ(f.measurement.detail, t.measurement.detail);
  EXPECT_EQ(f.driver, t.driver);
  EXPECT_EQ(f.nvrtc, t.nvrtc);
  EXPECT_EQ(f.uuid, t.uuid);
  EXPECT_EQ(f.attnforge_version, t.attnforge_version);
  EXPECT_EQ(f.measured_at, t.measured_at);
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(PutTest, BadTriesAreRowsTooAndComeLast) {
  Cache cache(path(), false, log());
  Try estimate = good_try(4, 1);
  estimate.estimated = true;
  estimate.measurement = {};
  cache.put({failed_try(1, Status::kCompileError, "no"), good_try(2, 20), estimate, good_try(3, 10),
             failed_try(5, Status::kTimedOut)});
  std::vector<std::string> order;
  for (const Try& t : cache.tries(kProblem, kH200)) order.push_back(t.config);
  EXPECT_THAT(order, ElementsAre(config(3), config(2), config(4), config(1), config(5)));
}

TEST_F(PutTest, LowerRigorDoesNotReplace) {
  Cache cache(path());
  cache.put({good_try(1, 10, Rigor::kFull)});
  Try passing = good_try(1, 5, Rigor::kQuick);
  passing.measurement.samples = kRacedSamples - 1;
  cache.put({passing});
  ASSERT_THAT(cache.tries(kProblem, kH200), SizeIs(1));
  EXPECT_EQ(cache.tries(kProblem, kH200)[0].measurement.time_us, 10);
  cache.put({good_try(1, 11, Rigor::kFull)});
  EXPECT_EQ(cache.tries(kProblem, kH200)[0].measurement.time_us, 11);
  cache.put({good_try(1, 12, Rigor::kExhaustive)});
  EXPECT_EQ(cache.tries(kProblem, kH200)[0].measurement.time_us, 12);
}

// What a search of less rigor reports is what plans find afterwards.
TEST_F(PutTest, ARaceOrAFailureOfLessRigorReplaces) {
  Cache cache(path());
  cache.put({good_try(1, 10, Rigor::kExhaustive), good_try(2, 10, Rigor::kExhaustive)});
  Try raced = good_try(1, 12, Rigor::kQuick), wrong = failed_try(2, Status::kWrongResult);
  raced.measurement.samples = kRacedSamples;
  wrong.rigor = Rigor::kQuick;
  cache.put({raced, wrong});
  const auto tries = cache.tries(kProblem, kH200);
  ASSERT_THAT(tries, SizeIs(2));
  EXPECT_EQ(tries[0].measurement.time_us, 12);
  EXPECT_EQ(tries[1].measurement.status, Status::kWrongResult);
  Try estimate = failed_try(1, Status::kCompileError);
  estimate.estimated = true;
  cache.put({estimate});
  EXPECT_EQ(cache.tries(kProblem, kH200)[0].measurement.time_us, 12)
      << "what was not run knows nothing of a kernel that ran";
}

TEST_F(PutTest, MeasurementBeatsEstimateOfAnyRigor) {
  Cache cache(path());
  Try estimate = good_try(1, 1, Rigor::kExhaustive);
  estimate.estimated = true;
  estimate.measurement = {};
  cache.put({estimate});
  cache.put({good_try(1, 10, Rigor::kQuick)});
  EXPECT_FALSE(cache.tries(kProblem, kH200)[0].estimated);
  cache.put({estimate});
  EXPECT_FALSE(cache.tries(kProblem, kH200)[0].estimated);
  EXPECT_EQ(cache.tries(kProblem, kH200)[0].measurement.time_us, 10);
}

TEST_F(PutTest, ANewDigestIsANewRow) {
  Cache cache(path());
  Try changed = good_try(1, 9);
  changed.digest = "another";
  cache.put({good_try(1, 10), changed});
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(2));
}

TEST_F(PutTest, OddNumbersAndLogsAreTamed) {
  Cache cache(path());
  Try odd = failed_try(1, Status::kWrongResult,
                       std::string("bad \xff\xfe bytes \xE2\x82") + std::string(5000, 'x'));
  odd.measurement.max_error = std::numeric_limits<double>::infinity();
  odd.measurement.noise = std::nan("");
  odd.estimate_us = std::nan("");
  odd.measured_at = "";
  odd.attnforge_version = "";
  cache.put({odd});
  const Try found = cache.tries(kProblem, kH200).at(0);
  EXPECT_TRUE(std::isnan(found.measurement.max_error));
  EXPECT_EQ(found.measurement.noise, 0);
  EXPECT_EQ(found.estimate_us, 0);
  EXPECT_EQ(found.measurement.detail.size(), 4096u);
  EXPECT_THAT(found.measurement.detail, HasSubstr("bad ?? bytes ??xxx"));
  EXPECT_EQ(found.measured_at.size(), std::string("2025-03-14T09:26:53Z").size());
  EXPECT_EQ(found.attnforge_version, kVersion);
}

TEST_F(PutTest, DetailIsNotCutInsideACharacter) {
  Cache cache(path());
  cache.put({failed_try(1, Status::kCompileError, std::string(4095, 'x') + "\xC3\xA9")});
  EXPECT_EQ(cache.tries(kProblem, kH200).at(0).measurement.detail, std::string(4095, 'x'));
}

TEST_F(PutTest, AKernelThatTakesNoTimeIsRefusedWithItsWholeBatch) {
  Cache cache(path());
  try {
    cache.put({good_try(1, 10), good_try(2, 0)});
    FAIL() << "a winner of 0 us was stored";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInternal);
    EXPECT_THAT(error.what(), HasSubstr(config(2)));
  }
  EXPECT_THAT(cache.tries(kProblem, kH200), IsEmpty());
}

TEST_F(PutTest, ManyThreadsShareOneCache) {
  Cache cache(path(), false, log());
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread)
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 25; ++i) {
        cache.put({good_try(thread * 100 + i, 10 + i)});
        cache.best(kProblem, current(), digest_of);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_THAT(cache.tries(kProblem, kH200), SizeIs(100));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(PutTest, MemoryDatabaseWorksAndLeavesNoFile) {
  Cache cache(":memory:", false, log());
  cache.put({good_try(1, 10)});
  EXPECT_EQ(cache.path(), ":memory:");
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of).has_value());
  EXPECT_THAT(folder_.files(), IsEmpty());
  EXPECT_THAT(messages_, IsEmpty());
}

TEST_F(PutTest, AMovedFromCacheMayBeAssignedAndDestroyed) {
  Cache first(path());
  first.put({good_try(1, 10)});
  Cache second = std::move(first);
  first = Cache(":memory:");
  EXPECT_THAT(second.tries(kProblem, kH200), SizeIs(1));
  EXPECT_THAT(first.tries(kProblem, kH200), IsEmpty());
}

TEST(SmOfDeviceClass, IsTheWordThatNamesIt) {
  EXPECT_EQ(sm_of_device_class(kH200), 90);
  EXPECT_EQ(sm_of_device_class(kA10), 86);
  EXPECT_EQ(sm_of_device_class("NVIDIA B200 sm_100a sms=148"), 100);
  EXPECT_EQ(sm_of_device_class("NVIDIA RTX PRO 6000 sm_120"), 120);
  EXPECT_EQ(sm_of_device_class("NVIDIA of 12\" and more sm_90a sms=132"), 90);
  EXPECT_EQ(sm_of_device_class("sms=132 small smx smart9 sm9 sm_9 sm90a sm_90ab sm__90 sm_ sm"), 0);
  EXPECT_EQ(sm_of_device_class(""), 0);
}

}  // namespace
}  // namespace attnforge::testing
