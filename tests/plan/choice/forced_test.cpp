// forced_test.cpp - plans whose config or family the caller names, and rows of a database that name
// what no plan may use.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/cache.h"
#include "tests/plan/plan_fixture.h"

namespace attnforge {
namespace {

using ::testing::HasSubstr;
using namespace test;

TEST_F(PlanTest, ForcedConfigIsUsedOrRefusedWithItsReason) {
  Device device = open();
  const std::vector<Candidate> all = candidates(registry(), bucket(kProblem), device.facts());
  const std::string chosen = to_string(all.at(5).config);
  const Plan plan = make_plan(kProblem, device, with_config(chosen));
  EXPECT_EQ(plan.config(), chosen);
  EXPECT_EQ(plan.provenance(), Provenance::kForced);
  EXPECT_EQ(make_plan(kProblem, device).provenance(), Provenance::kEstimated)
      << "forced plans are kept apart";
  EXPECT_EQ(make_plan(kProblem, device, with_config(chosen)).provenance(), Provenance::kForced);

  const Error error = error_of([&] { make_plan(kProblem, device, with_config("fwd_naive")); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("it has 0 fields, fwd_naive has 2"));
}

TEST_F(PlanTest, ValuesThatNoSearchTriesCanBeForced) {
  Device device = open();
  std::string text = make_plan(kProblem, device, with_family("fwd_mma_sm80")).config();
  const std::string exact = "pad_head_dim=0";
  ASSERT_NE(text.find(exact), text.npos);
  text.replace(text.find(exact), exact.size(), "pad_head_dim=1");
  EXPECT_EQ(make_plan(kProblem, device, with_config(text)).config(), text);
}

/// A config of the family that is legal for the bucket of kProblem and that no search tries.
Config needless_config(const char* family, const DeviceFacts& device) {
  const Problem tuned = bucket(kProblem);
  Cuts cuts;
  candidates(*find_family(family), tuned, device, &cuts);
  for (const CutCandidate& each : cuts.configs) {
    if (find_family(family)->illegal(each.config, tuned, device).empty()) return each.config;
  }
  ADD_FAILURE() << family << " searches all that is legal";
  return {};
}

TEST_F(PlanTest, ConfigsThatRulesOfThumbLeaveOutCanBeForced) {
  Device device = open();
  for (const char* family : {"fwd_wgmma_sm90a", "fwd_mma_sm80", "fwd_wmma", "fwd_flash_vec"}) {
    const std::string text = to_string(needless_config(family, device.facts()));
    const Plan plan = make_plan(kProblem, device, with_config(text));
    EXPECT_EQ(plan.config(), text);
    EXPECT_EQ(plan.provenance(), Provenance::kForced);
  }
}

TEST_F(PlanTest, AMeasuredWinnerIsKeptWhereARuleOfThumbWouldLeaveItOut) {
  const DeviceFacts device = open().facts();
  const Problem tuned = bucket(kProblem);
  const Family& family = *find_family("fwd_mma_sm80");
  const Config config = needless_config("fwd_mma_sm80", device);
  Try won;
  won.problem = to_string(tuned);
  won.device_class = device_class(device);
  won.config = to_string(config);
  won.family = family.name;
  won.digest = digest(family.render(config, tuned));
  won.measurement.time_us = 5;
  won.measurement.samples = kRacedSamples;
  {
    Cache cache(database());
    cache.put({won});
    cache.finish(won.problem, won.device_class, Rigor::kFull, won.config);
  }
  for (const char* asked : {"", "fwd_mma_sm80"}) {
    Device opened = open();
    const std::size_t before = logged().size();
    const Plan plan = make_plan(kProblem, opened, with_family(asked));
    EXPECT_EQ(plan.config(), won.config);
    EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
    EXPECT_THAT(logged().substr(before), ::testing::Not(HasSubstr("is skipped")));
  }
}

/// `config` with another value of a field that it has.
std::string with_value(const std::string& config, const std::string& field, int value) {
  Config changed = parse_config(config);
  for (auto& [name, own] : changed.fields) {
    if (name == field) own = value;
  }
  EXPECT_NE(to_string(changed), config) << field;
  return to_string(changed);
}

/// What divided by 0, overflowed or wrote past the output: fields that families know by one name.
constexpr std::pair<const char*, int> kHostileValues[] = {
    {"num_warps", 0},      {"num_warps", 255},   {"block_m", 0},
    {"block_n", 0},        {"block_n", 1 << 30}, {"blocks_per_sm", 1 << 30},
    {"blocks_per_sm", 0},  {"stages", 0},        {"stages", INT_MAX},
    {"head_group_mb", -1}, {"q_in_regs", 3},     {"step_n", INT_MIN},
    {"pack_gqa", 0},       {"pack_gqa", 4},      {"num_warps", INT_MAX},
    {"block_m", INT_MIN}};

TEST_F(PlanTest, ForcedConfigsWithHostileValuesAreRefused) {
  Device device = open();
  const std::string good = make_plan(kProblem, device, with_family("fwd_mma_sm80")).config();
  for (const auto& [field, value] : kHostileValues) {
    const std::string bad = with_value(good, field, value);
    const Error error = error_of([&] { make_plan(kProblem, device, with_config(bad)); });
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(),
                HasSubstr(std::string(field) + "=" + std::to_string(value) + " must be "));
  }
}

TEST_F(PlanTest, StoredConfigsWithHostileValuesAreSkippedWithAWarning) {
  // One such row ended every process that planned this problem.
  const DeviceFacts device = open().facts();
  const Problem tuned = bucket(kProblem);
  const Family& family = *find_family("fwd_mma_sm80");
  Try good;
  good.problem = to_string(tuned);
  good.device_class = device_class(device);
  good.config = to_string(candidates(family, tuned, device).at(1).config);
  good.family = family.name;
  good.digest = digest(family.render(parse_config(good.config), tuned));
  good.measurement.time_us = 50;
  good.measurement.samples = 7;
  std::vector<Try> rows = {good};
  for (const auto& [field, value] : kHostileValues) {
    Try bad = good;
    bad.config = with_value(good.config, field, value);
    bad.digest = "";
    bad.measurement.time_us = 1 + double(rows.size());
    rows.push_back(bad);
  }
  rows.back().config = "not a config";
  // No search that ended chose `good`: it answers since the model's own choice is slower.
  const Candidate models = untuned(registry(), tuned, device);
  Try own = good;
  own.config = to_string(models.config);
  own.family = models.family->name;
  own.measurement.time_us = 60;
  rows.push_back(own);
  {
    Cache cache(database());
    cache.put(rows);
    cache.finish(good.problem, good.device_class, Rigor::kFull, rows[1].config);
  }
  const fs::path copy = fs::path(database()).parent_path() / "copy.db";
  std::stringstream lines;
  EXPECT_EQ(cache_export(database(), lines), int(rows.size()) + 1);
  EXPECT_EQ(cache_import(copy.string(), lines), int(rows.size()) + 1);
  for (const std::string& path : {database(), copy.string()}) {
    for (const char* asked : {"", "fwd_mma_sm80"}) {
      Device opened = open(0, path);
      const std::size_t before = logged().size();
      const Plan plan = make_plan(kProblem, opened, with_family(asked));
      EXPECT_EQ(plan.config(), good.config);
      EXPECT_EQ(plan.provenance(), Provenance::kMeasured);
      const std::string log = logged().substr(before);
      EXPECT_THAT(log, HasSubstr(rows[1].config + "\" is skipped"));
      EXPECT_THAT(log, HasSubstr("num_warps=0 must be 2, 4, 8 or 16"));
      EXPECT_THAT(log, HasSubstr("\"not a config\" is skipped"));
    }
  }
}

TEST_F(PlanTest, ARowOfOneFamilyWithTheConfigOfAnotherIsNotUsedForIt) {
  const DeviceFacts device = open().facts();
  const Problem tuned = bucket(kProblem);
  Try row;
  row.problem = to_string(tuned);
  row.device_class = device_class(device);
  const Candidate naive = candidates(*find_family("fwd_naive"), tuned, device).at(0);
  row.config = to_string(naive.config);
  row.family = "fwd_mma_sm80";
  row.digest = digest(naive.family->render(naive.config, tuned));
  row.measurement.time_us = 1;
  row.measurement.samples = 7;
  Cache(database()).put({row});
  Device opened = open();
  const Plan plan = make_plan(kProblem, opened, with_family("fwd_mma_sm80"));
  EXPECT_THAT(plan.config(), ::testing::StartsWith("fwd_mma_sm80 "));
}

// What a search of one family chose is not noted: its tries must say it.
TEST_F(PlanTest, APlanOfOneFamilyTakesTheFastestThatWasRaced) {
  const DeviceFacts device = open().facts();
  const Problem tuned = bucket(kProblem);
  const std::vector<Candidate> all = candidates(*find_family("fwd_mma_sm80"), tuned, device);
  const auto row = [&](const Candidate& candidate, double time_us, int samples) {
    Try result;
    result.problem = to_string(tuned);
    result.device_class = device_class(device);
    result.config = to_string(candidate.config);
    result.family = candidate.config.family;
    result.digest = digest(candidate.family->render(candidate.config, tuned));
    result.measurement.time_us = time_us;
    result.measurement.samples = samples;
    return result;
  };
  const Try raced = row(all.at(1), 10, kRacedSamples);
  Cache(database()).put({raced, row(all.at(2), 9, 3), row(all.at(3), 11, kRacedSamples)});
  Device opened = open();
  PlanOptions options;
  options.family = "fwd_mma_sm80";
  EXPECT_EQ(make_plan(kProblem, opened, options).config(), raced.config);
}

TEST_F(PlanTest, ForcedFamilyIsUsedOrRefused) {
  Device device = open();
  const Plan plan = make_plan(kProblem, device, with_family("fwd_naive"));
  EXPECT_THAT(plan.config(), ::testing::StartsWith("fwd_naive "));
  const Error error = error_of([&] { make_plan(kProblem, device, with_family("fwd_nothing")); });
  EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.what(), HasSubstr("fwd_naive"));
}

}  // namespace
}  // namespace attnforge
