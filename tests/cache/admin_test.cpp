// admin_test.cpp - list, stats and clear.
#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/file/open.h"
#include "support.h"

namespace attnforge::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kOtherProblem = "fwd fp16 batch=2 num_heads_q=8 num_heads_kv=8";

class AdminTest : public CacheTest {
 protected:
  static Try of_other(Try t) {
    t.problem = kOtherProblem;
    return t;
  }
};

TEST_F(AdminTest, ListGivesTheBestOfEachProblemAndGpu) {
  {
    Cache cache(path());
    Try elsewhere = good_try(1, 99);
    elsewhere.device_class = kA10;
    Try estimate = of_other(good_try(5, 1));
    estimate.estimated = true;
    estimate.estimate_us = 42;
    estimate.measurement = {};
    cache.put(
        {good_try(1, 10), good_try(2, 11), failed_try(3, Status::kTimedOut), elsewhere, estimate});
    cache.finish(kProblem, kH200, Rigor::kFull, config(2));
    cache.put_cubin(cubin(digest_of(config(2))), "source", "f");
  }
  const auto entries = cache_list(path());
  ASSERT_THAT(entries, SizeIs(3));
  EXPECT_EQ(entries[0].device_class, kA10);
  EXPECT_EQ(entries[0].time_us, 99);
  EXPECT_FALSE(entries[0].has_cubin);
  const CacheEntry& e = entries[1];
  EXPECT_EQ(e.problem, kProblem);
  EXPECT_EQ(e.device_class, kH200);
  EXPECT_EQ(e.config, config(2)) << "what the search chose";
  EXPECT_EQ(e.digest, digest_of(config(2)));
  EXPECT_EQ(e.time_us, 11);
  EXPECT_EQ(e.noise, 0.01);
  EXPECT_EQ(e.tries, 3);
  EXPECT_EQ(e.failures, 1);
  EXPECT_TRUE(e.has_cubin);
  EXPECT_FALSE(e.estimated);
  EXPECT_EQ(e.driver, kDriver);
  EXPECT_EQ(e.nvrtc, kNvrtc);
  EXPECT_EQ(e.measured_at, "2025-03-14T09:26:53Z");
  EXPECT_TRUE(entries[2].estimated);
  EXPECT_EQ(entries[2].time_us, 42);
  EXPECT_THAT(cache_list(path(), "fp16"), SizeIs(1));
  EXPECT_THAT(cache_list(path(), "FP16"), IsEmpty());
}

TEST_F(AdminTest, ListShowsProblemsOfWhichNothingWorked) {
  Cache(path()).put({failed_try(1, Status::kCompileError), failed_try(2, Status::kCompileError)});
  const auto entries = cache_list(path());
  ASSERT_THAT(entries, SizeIs(1));
  EXPECT_EQ(entries[0].config, "");
  EXPECT_EQ(entries[0].failures, 2);
}

TEST_F(AdminTest, StatsCount) {
  {
    Cache cache(path());
    cache.put({good_try(1, 10), good_try(2, 11), of_other(good_try(1, 5))});
    cache.put_cubin(cubin("d"), "source", "f");
  }
  const CacheStats stats = cache_stats(path());
  EXPECT_EQ(stats.path, path());
  EXPECT_EQ(stats.file_bytes, static_cast<std::int64_t>(std::filesystem::file_size(path())));
  EXPECT_EQ(stats.schema_version, kSchemaVersion);
  EXPECT_EQ(stats.problems, 2);
  EXPECT_EQ(stats.device_classes, 1);
  EXPECT_EQ(stats.tries, 3);
  EXPECT_EQ(stats.cubins, 1);
  EXPECT_EQ(stats.cubin_bytes, raw().integer("SELECT length(code) + length(source) FROM cubins"));
  EXPECT_TRUE(stats.healthy);
  EXPECT_EQ(stats.health, "ok");
}

TEST_F(AdminTest, StatsOfADamagedFileSaySoAndLeaveIt) {
  write_file(path(), std::string(5000, 'x'));
  const CacheStats stats = cache_stats(path());
  EXPECT_FALSE(stats.healthy);
  EXPECT_THAT(stats.health, HasSubstr("not a database"));
  EXPECT_THAT(folder_.files(), SizeIs(1));
  EXPECT_THROW(cache_list(path()), Error);
  EXPECT_THAT(folder_.files(), SizeIs(1));
}

TEST_F(AdminTest, AMissingFileIsAnErrorAndIsNotMade) {
  const auto expect_missing = [&](auto&& call) {
    try {
      call();
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCache);
      EXPECT_THAT(error.what(), HasSubstr("there is no database at " + path()));
    }
  };
  expect_missing([&] { cache_list(path()); });
  expect_missing([&] { cache_show(path(), ""); });
  expect_missing([&] { cache_stats(path()); });
  expect_missing([&] { cache_clear(path(), ""); });
  EXPECT_THAT(folder_.files(), IsEmpty());
}

TEST_F(AdminTest, AForeignFileIsAnErrorAndStays) {
  raw(SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE).execute("CREATE TABLE mail (text)");
  EXPECT_THROW(cache_list(path()), Error);
  EXPECT_THROW(cache_clear(path(), ""), Error);
  EXPECT_EQ(raw().integer("SELECT count(*) FROM sqlite_master"), 1);
}

class ClearTest : public AdminTest {
 protected:
  void SetUp() override {
    Cache cache(path());
    Try shared = of_other(good_try(2, 30));
    shared.device_class = kA10;
    cache.put({good_try(1, 10), good_try(2, 20), shared});
    cache.finish(kProblem, kH200, Rigor::kFull, config(1));
    cache.put_cubin(cubin(digest_of(config(1)), 300'000), "source", "f");
    cache.put_cubin(cubin(digest_of(config(2)), 300'000), "source", "f");
    cache.put_cubin(cubin("of a plan that was never tuned"), "source", "f");
  }
  bool has_cubin(const std::string& digest) {
    return Cache(path()).get_cubin(digest, "90a", kNvrtc).has_value();
  }
};

TEST_F(ClearTest, AProblemGoesWithWhatOnlyItUsed) {
  const auto before = std::filesystem::file_size(path());
  EXPECT_EQ(cache_clear(path(), "bf16"), 2);
  EXPECT_LT(std::filesystem::file_size(path()), before) << "the disk gets its space back";
  const CacheStats stats = cache_stats(path());
  EXPECT_EQ(stats.problems, 1);
  EXPECT_EQ(stats.device_classes, 1);
  EXPECT_EQ(stats.tries, 1);
  EXPECT_EQ(raw().integer("SELECT count(*) FROM searches"), 0);
  EXPECT_FALSE(has_cubin(digest_of(config(1))));
  EXPECT_TRUE(has_cubin(digest_of(config(2)))) << "the other problem uses it";
  EXPECT_TRUE(has_cubin("of a plan that was never tuned"));
  EXPECT_EQ(cache_clear(path(), "bf16"), 0);
}

TEST_F(ClearTest, EverythingGoes) {
  EXPECT_EQ(cache_clear(path(), ""), 3);
  const CacheStats stats = cache_stats(path());
  EXPECT_EQ(stats.problems + stats.device_classes + stats.tries + stats.cubins, 0);
  EXPECT_TRUE(stats.healthy);
}

TEST_F(ClearTest, CubinsOnly) {
  EXPECT_EQ(cache_clear(path(), "fp16", true), 1);
  EXPECT_FALSE(has_cubin(digest_of(config(2))));
  EXPECT_EQ(cache_clear(path(), "", true), 2);
  EXPECT_EQ(cache_stats(path()).tries, 3);
}

TEST_F(ClearTest, AnOpenCacheSeesIt) {
  Cache cache(path(), false, log());
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  cache_clear(path(), "");
  EXPECT_FALSE(cache.best(kProblem, current(), digest_of));
  cache.put({good_try(1, 10)});
  EXPECT_TRUE(cache.best(kProblem, current(), digest_of));
  EXPECT_THAT(messages_, IsEmpty());
}

TEST(Words, AreReadBack) {
  for (const Rigor rigor : {Rigor::kQuick, Rigor::kFull, Rigor::kExhaustive})
    EXPECT_EQ(parse_rigor(to_string(rigor)), rigor);
  for (const Status status : {Status::kOk, Status::kCompileError, Status::kLaunchError,
                              Status::kWrongResult, Status::kTimedOut})
    EXPECT_EQ(parse_status(to_string(status)), status);
  try {
    parse_rigor("hasty");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("'hasty': use one of quick, full, exhaustive"));
  }
  EXPECT_THROW(parse_status(""), Error);
}

}  // namespace
}  // namespace attnforge::testing
