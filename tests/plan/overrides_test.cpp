// overrides_test.cpp - the environment's switches, and plans and databases under them: a fake
// driver, real NVRTC, no GPU.
#include "plan/overrides.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "runtime/compile/compiler.h"
#include "templates/embedded.h"
#include "templates/registry.h"
#include "tests/support/environment.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using test::ScopedEnvironment;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;
namespace fs = std::filesystem;

const Problem kProblem = parse_problem("fwd fp16 num_heads=2 seqlen=300 head_dim=64");
using Variables = std::map<std::string, std::string>;

class OverridesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_overrides_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string database() const { return (folder_ / "cache.db").string(); }
  Device open() {
    return Device(
        {.ordinal = 0, .cache_path = database(), .log = [this](LogLevel, std::string_view message) {
           const std::lock_guard lock(mutex_);
           logged_ += std::string(message) + "\n";
         }});
  }
  std::string logged() {
    const std::lock_guard lock(mutex_);
    return logged_;
  }
  /// A folder of templates with one file.
  std::string templates(const std::string& path, const std::string& text) {
    const fs::path file = folder_ / "templates" / path;
    fs::create_directories(file.parent_path());
    std::ofstream(file) << text;
    return (folder_ / "templates").string();
  }
  static std::string error_with(const Variables& variables) {
    const ScopedEnvironment scope(variables);
    try {
      overrides_from_environment();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  }

  fs::path folder_;
  std::mutex mutex_;
  std::string logged_;
};

// ---- reading ----

TEST_F(OverridesTest, UnsetAndEmptyForceNothing) {
  EXPECT_EQ(forced_text(overrides_from_environment()), "");
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_FAMILY", ""},
                                          {"ATTNFORGE_BLOCK_N", ""},
                                          {"ATTNFORGE_TEMPLATES", ""},
                                          {"ATTNFORGE_PRINT_LAUNCH", "0"},
                                          {"ATTNFORGE_CHECK_INPUTS", ""}});
  const Overrides overrides = overrides_from_environment();
  EXPECT_EQ(forced_text(overrides), "");
  EXPECT_FALSE(overrides.print_launch);
  EXPECT_FALSE(overrides.check_inputs);
}

TEST_F(OverridesTest, ReadsEverySwitch) {
  const ScopedEnvironment scope(
      Variables{{"ATTNFORGE_FAMILY", "fwd_mma_sm80"},
                {"ATTNFORGE_BLOCK_N", "32"},
                {"ATTNFORGE_SMEM_BYTES", "49152"},
                {"ATTNFORGE_KERNEL_NAME", "mine"},
                {"ATTNFORGE_PRINT_LAUNCH", "1"},
                {"ATTNFORGE_CHECK_INPUTS", "1"},
                {"ATTNFORGE_TEMPLATES", templates("tile/softmax.cuh", "// own\n")}});
  const Overrides overrides = overrides_from_environment();
  EXPECT_EQ(
      forced_text(overrides),
      "forced family=fwd_mma_sm80 block_n=32 smem_bytes=49152 own_templates kernel_name=mine");
  EXPECT_TRUE(overrides.print_launch);
  EXPECT_TRUE(overrides.check_inputs);
  int replaced = 0;
  for (const TemplateFile& file : overrides.headers) replaced += file.text == "// own\n";
  EXPECT_EQ(replaced, 1);
}

/// Those of steps lie a folder deeper than others.
TEST_F(OverridesTest, EveryHeaderOfAKernelCanBeReplaced) {
  const auto of_host_too = [](const std::string& path) {
    const std::string name = fs::path(path).filename().string();
    return name == "config.h" || name == "shape.h" || name == "params.h" || name == "base_params.h";
  };
  std::string folder;
  for (const Header& header : embedded_headers()) {
    const std::string path(header.path);
    if (!of_host_too(path)) folder = templates(path, "// own\n");
  }
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_TEMPLATES", folder}});
  for (const TemplateFile& file : overrides_from_environment().headers)
    if (!of_host_too(file.path)) EXPECT_EQ(file.text, "// own\n") << file.path;
}

TEST_F(OverridesTest, BadValuesNameTheVariableAndWhatIsAllowed) {
  for (const char* value : {"0", "-64", "many", "64 ", "99999999999"}) {
    EXPECT_THAT(
        error_with({{"ATTNFORGE_BLOCK_N", value}}),
        AllOf(HasSubstr(std::string("ATTNFORGE_BLOCK_N=") + value), HasSubstr("such as 64")));
    EXPECT_THAT(error_with({{"ATTNFORGE_SMEM_BYTES", value}}), HasSubstr("such as 49152"));
  }
  EXPECT_THAT(error_with({{"ATTNFORGE_FAMILY", "fwd_nothing"}}), HasSubstr("fwd_naive"));
  EXPECT_THAT(error_with({{"ATTNFORGE_KERNEL_NAME", "my-kernel"}}), HasSubstr("identifier"));
  EXPECT_THAT(error_with({{"ATTNFORGE_KERNEL_NAME", "1st"}}), HasSubstr("identifier"));
  EXPECT_THAT(error_with({{"ATTNFORGE_PRINT_LAUNCH", "yes"}}), HasSubstr("1 or 0"));
  EXPECT_THAT(error_with({{"ATTNFORGE_CHECK_INPUTS", "2"}}), HasSubstr("1 or 0"));
}

TEST_F(OverridesTest, ValuesThatNoFamilyTakesAreRefused) {
  for (const char* value : {"1", "7", "1024", "1073741824", "2147483647"}) {
    EXPECT_THAT(error_with({{"ATTNFORGE_BLOCK_N", value}}),
                AllOf(HasSubstr(std::string("ATTNFORGE_BLOCK_N=") + value),
                      HasSubstr("fwd_mma_sm80 takes a multiple of 16 from 16 to 256"),
                      Not(HasSubstr("fwd_naive"))));
  }
  EXPECT_EQ(error_with({{"ATTNFORGE_BLOCK_N", "80"}}), "");
  EXPECT_EQ(error_with({{"ATTNFORGE_BLOCK_N", "36"}}), "") << "for fwd_flash_vec";
  EXPECT_THAT(error_with({{"ATTNFORGE_BLOCK_N", "36"}, {"ATTNFORGE_FAMILY", "fwd_mma_sm80"}}),
              AllOf(HasSubstr("fwd_mma_sm80 takes"), Not(HasSubstr("fwd_flash_vec"))));
  EXPECT_THAT(error_with({{"ATTNFORGE_BLOCK_N", "64"}, {"ATTNFORGE_FAMILY", "fwd_naive"}}),
              HasSubstr("fwd_naive has no block_n"));
  EXPECT_EQ(error_with({{"ATTNFORGE_SMEM_BYTES", "232448"}}), "");
  EXPECT_THAT(error_with({{"ATTNFORGE_SMEM_BYTES", "232449"}}), HasSubstr("more than 232448"));
}

TEST_F(OverridesTest, TemplateFoldersThatDoNothingOrHarmAreRefused) {
  EXPECT_THAT(error_with({{"ATTNFORGE_TEMPLATES", (folder_ / "none").string()}}),
              HasSubstr("path of a folder"));
  EXPECT_THAT(error_with({{"ATTNFORGE_TEMPLATES", templates("softmax.cuh", "")}}),
              HasSubstr("no header to replace one"))
      << "the path below the folder is what counts";
  EXPECT_THAT(error_with({{"ATTNFORGE_TEMPLATES", templates("oracle/fwd_naive/config.h", "")}}),
              HasSubstr("oracle/fwd_naive/config.h"))
      << "the host would not have it";
  EXPECT_THAT(error_with({{"ATTNFORGE_TEMPLATES", "/"}}), HasSubstr("ATTNFORGE_TEMPLATES=/"))
      << "neither all of the disk nor what cannot be read";
}

// ---- inspect ----

TEST_F(OverridesTest, InspectShowsTheForcedChoice) {
  const ScopedEnvironment scope(
      Variables{{"ATTNFORGE_BLOCK_N", "32"}, {"ATTNFORGE_KERNEL_NAME", "mine"}});
  InspectOptions options;
  options.compile = false;
  options.cache_path = ":memory:";
  const Inspection found = inspect(kProblem, typical_device("86"), options);
  EXPECT_THAT(found.config, HasSubstr("block_n=32"));
  EXPECT_THAT(found.why, HasSubstr("forced block_n=32 kernel_name=mine"));
  EXPECT_THAT(found.source_entry, HasSubstr("\nmine("));
  ASSERT_EQ(found.launches.size(), 1u);
  EXPECT_EQ(found.launches[0].kernel, "mine");
}

TEST_F(OverridesTest, InspectKeepsToTheBudget) {
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_SMEM_BYTES", "20000"}});
  InspectOptions options;
  options.compile = false;
  options.cache_path = ":memory:";
  options.family = "fwd_mma_sm80";
  const Inspection found = inspect(kProblem, typical_device("86"), options);
  EXPECT_LE(found.launches.at(0).smem_bytes, 20000);
  EXPECT_EQ(found.device.arch.smem_per_block_bytes, 20000);
}

TEST_F(OverridesTest, EstimatesRankedUnderForceAreStoredApart) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_FAMILY", "fwd_naive"}});
  rank_untuned(kProblem, typical_device("86"), 1, database());
  for (const CacheEntry& entry : cache_list(database()))
    EXPECT_EQ(entry.problem, to_string(bucket(kProblem)) + " forced family=fwd_naive");
}

// ---- plans ----

TEST_F(OverridesTest, PlansUnderForceSaySoAndAreOfTheForcedKind) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const ScopedEnvironment scope(
      Variables{{"ATTNFORGE_FAMILY", "fwd_mma_sm80"}, {"ATTNFORGE_BLOCK_N", "32"}});
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  EXPECT_THAT(plan.config(), AllOf(StartsWith("fwd_mma_sm80 "), HasSubstr("block_n=32")));
  EXPECT_EQ(plan.provenance(), Provenance::kForced);
  EXPECT_THAT(logged(), HasSubstr("forced family=fwd_mma_sm80 block_n=32"));
}

TEST_F(OverridesTest, SwitchesAreReadWhenADeviceIsOpened) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  Device device = open();
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_FAMILY", "fwd_naive"}});
  EXPECT_THAT(make_plan(kProblem, device).config(), Not(StartsWith("fwd_naive ")));
}

TEST_F(OverridesTest, CallersChoiceThatContradictsIsRefused) {
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_FAMILY", "fwd_naive"}});
  Device device = open();
  const auto message = [&](const PlanOptions& options) -> std::string {
    try {
      make_plan(kProblem, device, options);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  PlanOptions family;
  family.family = "fwd_mma_sm80";
  EXPECT_THAT(message(family), HasSubstr("ATTNFORGE_FAMILY forces fwd_naive"));
  PlanOptions config;
  config.config = to_string(
      candidates(*find_family("fwd_mma_sm80"), bucket(kProblem), device.facts()).at(0).config);
  EXPECT_THAT(message(config), HasSubstr("ATTNFORGE_FAMILY forces fwd_naive"));
}

/// A finished search of the problem's bucket under its own key or a forced one.
void store_winner(const std::string& path, const Candidate& winner, const std::string& key,
                  const DeviceFacts& device, const std::string& digest) {
  Try each;
  each.problem = key;
  each.device_class = device_class(device);
  each.config = to_string(winner.config);
  each.family = winner.family->name;
  each.digest = digest;
  each.measurement.time_us = 12.5;
  Cache cache(path);
  cache.put({each});
  cache.finish(key, each.device_class, Rigor::kFull, each.config);
}

TEST_F(OverridesTest, WhatWonUnderForceDoesNotAnswerForTheProblem) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Problem tuned = bucket(kProblem);
  Overrides forced;
  forced.block_n = 32;
  std::string winner;
  {
    Device device = open();
    const Candidate third = candidates(*find_family("fwd_mma_sm80"), tuned, device.facts(), nullptr,
                                       forced)
                                .at(2);
    winner = to_string(third.config);
    store_winner(database(), third, stored_as(tuned, forced), device.facts(),
                 digest(third.family->render(third.config, tuned)));
    const Plan plan = make_plan(kProblem, device);
    EXPECT_NE(plan.config(), winner);
    EXPECT_EQ(plan.provenance(), Provenance::kEstimated);
  }
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_BLOCK_N", "32"}});
  Device device = open();
  const Plan plan = make_plan(kProblem, device);
  EXPECT_EQ(plan.config(), winner);
  EXPECT_EQ(plan.provenance(), Provenance::kForced);
  EXPECT_EQ(plan.measured_us(), 12.5);
}

TEST_F(OverridesTest, WinnerOfTheProblemDoesNotAnswerUnderForce) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Problem tuned = bucket(kProblem);
  const ScopedEnvironment scope(Variables{{"ATTNFORGE_KERNEL_NAME", "mine"}});
  Device device = open();
  const Candidate second = candidates(registry(), tuned, device.facts()).at(1);
  store_winner(database(), second, to_string(tuned), device.facts(),
               digest(second.family->render(second.config, tuned)));
  EXPECT_EQ(make_plan(kProblem, device).measured_us(), 0);
}

TEST_F(OverridesTest, OwnTemplatesAreCompiledAndTheirCodeIsStoredApart) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  PlanOptions naive;
  naive.family = "fwd_naive";
  {
    Device device = open();
    make_plan(kProblem, device, naive);
  }
  const auto cubins = [&] { return cache_stats(database()).cubins; };
  ASSERT_EQ(cubins(), 1);
  std::string own;
  for (const TemplateFile& file : [] {
         const ScopedEnvironment any(Variables{{"ATTNFORGE_KERNEL_NAME", "any"}});
         return overrides_from_environment().headers;
       }()) {
    if (file.path == "oracle/fwd_naive/kernel.cuh") own = file.text + "// own\n";
  }
  ASSERT_NE(own, "");
  PlanOptions no_jit = naive;
  no_jit.allow_compile = false;
  {
    const ScopedEnvironment scope(
        Variables{{"ATTNFORGE_TEMPLATES", templates("oracle/fwd_naive/kernel.cuh", own)}});
    Device device = open();
    EXPECT_NO_THROW(make_plan(kProblem, device, no_jit)) << "a comment makes no other kernel";
  }
  own += "inline constexpr int kOwn = 1;\n";
  const ScopedEnvironment scope(
      Variables{{"ATTNFORGE_TEMPLATES", templates("oracle/fwd_naive/kernel.cuh", own)}});
  Device device = open();
  EXPECT_THROW(make_plan(kProblem, device, no_jit), Error) << "nothing stale is used";
  EXPECT_EQ(make_plan(kProblem, device, naive).provenance(), Provenance::kForced);
  EXPECT_EQ(cubins(), 2);
}

// ---- launches ----

TEST_F(OverridesTest, EachKernelsLaunchIsPrintedOnceWhateverTheLogLevel) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const ScopedEnvironment scope(
      Variables{{"ATTNFORGE_PRINT_LAUNCH", "1"}, {"ATTNFORGE_LOG", "error"}});
  Device device = open();
  PlanOptions naive;
  naive.family = "fwd_naive";
  const Plan plan = make_plan(kProblem, device, naive);
  const std::string first = logged();
  EXPECT_THAT(first,
              AllOf(StartsWith("launch fwd_naive_fp16_d64"), HasSubstr(" grid="),
                    HasSubstr(" block="), HasSubstr(" smem_bytes="), HasSubstr(" registers=64"),
                    HasSubstr(plan.config()), HasSubstr(to_string(kProblem))));
  Problem longer = kProblem;
  longer.seqlen_q = longer.seqlen_kv = 310;
  make_plan(longer, device, naive);
  EXPECT_EQ(logged(), first);
  EXPECT_EQ(plan.provenance(), Provenance::kEstimated) << "printing forces nothing";
}

TEST_F(OverridesTest, NothingIsPrintedUnasked) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  Device device = open();
  make_plan(kProblem, device);
  EXPECT_EQ(logged(), "");
}

}  // namespace
}  // namespace attnforge
