// tiers_test.cpp - who gets a family of the ladder: tuning and plans end to end, on a fake GPU that
// can be tuned on and with a compiler that compiles nothing.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <string>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "plan/choice/choice.h"
#include "plan/overrides.h"
#include "templates/registry.h"
#include "tests/support/environment.h"

namespace attnforge {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
namespace fs = std::filesystem;

const Problem kUsual = parse_problem("fwd fp16 num_heads=2 seqlen=128 head_dim=64");
const Problem kUnaligned = parse_problem("fwd fp16 num_heads=2 seqlen=128 head_dim=64 alignment=2");
const Problem kMixed = parse_problem("fwd fp16 q=fp32 num_heads=2 seqlen=128 head_dim=64");

PlanOptions options_of(Policy policy, const std::string& family = "") {
  PlanOptions options;
  options.policy = policy;
  options.family = family;
  options.time_limit_s = 30;
  return options;
}

class TiersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_tiers_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string database() const { return (folder_ / "cache.db").string(); }
  Device open() {
    return Device({.cache_path = database(), .log = [this](LogLevel level, std::string_view text) {
                     const std::lock_guard lock(mutex_);
                     if (level == LogLevel::kWarning) warnings_.emplace_back(text);
                   }});
  }

  /// Of all that was tried for the bucket of `problem`.
  std::set<std::string> families_tried(const Problem& problem, const DeviceFacts& device) {
    std::set<std::string> names;
    for (const Try& each :
         Cache(database()).tries(to_string(bucket(problem)), device_class(device)))
      names.insert(each.family);
    return names;
  }

  /// As a search of all families would have left it.
  std::string store_winner(const std::string& family, const DeviceFacts& device,
                           const Problem& problem = kUsual) {
    const Problem tuned = bucket(problem);
    const Candidate winner = candidates(*find_family(family), tuned, device).front();
    Try each;
    each.problem = stored_as(tuned, overrides_from_environment());
    each.device_class = device_class(device);
    each.config = to_string(winner.config);
    each.family = family;
    each.digest = digest(winner.family->render(winner.config, tuned));
    each.measurement.time_us = 1;
    each.measurement.samples = 7;
    Cache cache(database());
    cache.put({each});
    cache.finish(each.problem, each.device_class, Rigor::kFull, each.config);
    return each.config;
  }

  std::vector<std::string> warnings_;

 private:
  fs::path folder_;
  std::mutex mutex_;
};

TEST_F(TiersTest, FirstRunTriesProductsAlone) {
  Device device = open();
  const Plan plan = make_plan(kUsual, device, options_of(Policy::kFirstRun));
  EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
  const std::set<std::string> tried = families_tried(kUsual, device.facts());
  EXPECT_THAT(tried, Not(IsEmpty()));
  for (const std::string& name : tried) EXPECT_EQ(find_family(name)->tier, Tier::kProduct) << name;
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST_F(TiersTest, WhatOnlyTheLadderServesGetsItWithOneWarning) {
  Device device = open();
  const Plan estimate = make_plan(kUnaligned, device, options_of(Policy::kEstimate));
  EXPECT_THAT(estimate.config(), StartsWith("fwd_flash_vec "));
  const Plan tuned = make_plan(kUnaligned, device, options_of(Policy::kFirstRun));
  EXPECT_EQ(tuned.provenance(), Provenance::kMeasured);
  EXPECT_THAT(tuned.config(), AnyOf(StartsWith("fwd_flash_vec "), StartsWith("fwd_flash_scalar ")));
  for (const std::string& name : families_tried(kUnaligned, device.facts()))
    EXPECT_EQ(find_family(name)->tier, Tier::kLadder) << name;
  tune(kUnaligned, device, {.rigor = Rigor::kQuick});
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("which no product family does"));
}

TEST_F(TiersTest, WhatOnlyTheOracleServesIsSaidByATuningToo) {
  Device device = open();
  const TuneResult result = tune(kMixed, device, {.rigor = Rigor::kQuick});
  EXPECT_THAT(result.winner, StartsWith("fwd_naive "));
  ASSERT_THAT(warnings_, SizeIs(1));
  EXPECT_THAT(warnings_[0], HasSubstr("fwd_naive serves"));
}

TEST_F(TiersTest, WhoNamesAFamilyGetsItUnwarned) {
  Device device = open();
  for (const char* name : {"fwd_materialized", "fwd_wmma", "fwd_naive"}) {
    for (const Policy policy : {Policy::kEstimate, Policy::kFirstRun}) {
      const Plan plan = make_plan(kUsual, device, options_of(policy, name));
      EXPECT_THAT(plan.config(), StartsWith(std::string(name) + " "));
    }
  }
  EXPECT_THAT(warnings_, IsEmpty());
}

// The baseline that keeps all scores is for comparisons, also where its tier serves.
TEST_F(TiersTest, WhatMustBeNamedIsForThoseWhoNameIt) {
  for (const Family* family : families_named("", {})) EXPECT_FALSE(family->only_named);
  EXPECT_THAT(families_named("fwd_materialized", {}), SizeIs(1));

  const Problem problem = parse_problem("fwd fp32 num_heads=2 seqlen=128 head_dim=64");
  // No product fits, but the ladder does.
  const test::ScopedEnvironment scope(
      std::map<std::string, std::string>{{"ATTNFORGE_SMEM_BYTES", "20480"}});
  const DeviceFacts facts = open().facts();
  const std::string stored = store_winner("fwd_materialized", facts, problem);
  Device device = open();
  EXPECT_THAT(make_plan(problem, device, options_of(Policy::kEstimate)).config(),
              StartsWith("fwd_flash_vec "));
  // A fake GPU's times are those of no kernel.
  EXPECT_THAT(make_plan(problem, device).config(),
              AnyOf(StartsWith("fwd_flash_vec "), StartsWith("fwd_flash_scalar ")));
  EXPECT_EQ(make_plan(problem, device, options_of(Policy::kEstimate, "fwd_materialized")).config(),
            stored);
  const std::string vec = store_winner("fwd_flash_vec", facts, problem);
  Device next = open();
  EXPECT_EQ(make_plan(problem, next).config(), vec);
}

TEST_F(TiersTest, StoredWinnersOfTheLadderAreForThoseWhoNameThem) {
  const DeviceFacts facts = open().facts();
  for (const char* name : {"fwd_wmma", "fwd_materialized"}) {
    const std::string stored = store_winner(name, facts);
    Device device = open();
    const Plan unnamed = make_plan(kUsual, device, options_of(Policy::kEstimate));
    EXPECT_THAT(unnamed.config(), StartsWith("fwd_wgmma_sm90a "));
    EXPECT_EQ(unnamed.provenance(), Provenance::kEstimated);
    try {
      make_plan(kUsual, device, options_of(Policy::kCachedOnly));
      ADD_FAILURE() << "nothing of a product was measured";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kNotReady);
    }
    EXPECT_EQ(make_plan(kUsual, device, options_of(Policy::kEstimate, name)).config(), stored);
  }
  Device device = open();
  const Plan tuned = make_plan(kUsual, device, options_of(Policy::kFirstRun));
  EXPECT_EQ(tuned.provenance(), Provenance::kMeasured);
  EXPECT_THAT(tuned.config(), AnyOf(StartsWith("fwd_wgmma_sm90a "), StartsWith("fwd_mma_sm80 ")));
  Device next = open();
  EXPECT_EQ(make_plan(kUsual, next).config(), tuned.config());
  EXPECT_THAT(warnings_, IsEmpty());
}

}  // namespace
}  // namespace attnforge
