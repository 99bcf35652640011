// plan_fixture.h - a database, devices of the fake driver and their log, for tests of plans. No
// GPU.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "cache/cache.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "plan/device_state.h"
#include "runtime/compile/compiler.h"
#include "runtime/driver.h"
#include "templates/registry.h"
#include "tests/support/error_of.h"
#include "tests/support/fake_cuda.h"

namespace attnforge::test {

namespace fs = std::filesystem;

inline const Problem kProblem = parse_problem(
    "fwd fp16 batch=1 num_heads=4:2 seqlen=300 head_dim=64 causal");

inline PlanOptions with(Policy policy) {
  PlanOptions options;
  options.policy = policy;
  return options;
}
inline PlanOptions no_jit() {
  PlanOptions options;
  options.allow_compile = false;
  return options;
}
inline PlanOptions first_run() {
  PlanOptions options = with(Policy::kFirstRun);
  options.time_limit_s = 2;
  return options;
}
inline PlanOptions with_config(const std::string& config) {
  PlanOptions options;
  options.config = config;
  return options;
}
inline PlanOptions with_family(const std::string& family) {
  PlanOptions options;
  options.family = family;
  return options;
}

/// Tensors with pointers that are good to look at; the fake driver never follows them.
inline Tensors tensors_of(const Problem& problem) {
  Tensors tensors = contiguous_tensors(problem);
  const auto address = [](std::uintptr_t value) { return reinterpret_cast<void*>(value); };
  tensors.q.data = address(0x10000);
  tensors.k.data = address(0x20000);
  tensors.v.data = address(0x30000);
  tensors.o.data = address(0x40000);
  return tensors;
}

class PlanTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
    if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
    folder_ = fs::path(::testing::TempDir()) /
              ("attnforge_plan_test_" + std::to_string(getpid()) + "_" +
               ::testing::UnitTest::GetInstance()->current_test_info()->name());
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string database() const { return (folder_ / "cache.db").string(); }
  Device open(int ordinal = 0) { return open(ordinal, database()); }
  Device open(int ordinal, const std::string& path) {
    return Device(
        {.ordinal = ordinal, .cache_path = path, .log = [this](LogLevel, std::string_view message) {
           const std::lock_guard lock(mutex_);
           logged_ += std::string(message) + "\n";
         }});
  }
  std::string logged() {
    const std::lock_guard lock(mutex_);
    return logged_;
  }

  /// Stores a finished search for kProblem's bucket, won by the model's `rank`-th candidate.
  /// Returns the winner's text.
  std::string store_winner(const DeviceFacts& device, std::size_t rank,
                           const std::string& digest_suffix = "") {
    return store_winner(device, bucket(kProblem),
                        candidates(registry(), bucket(kProblem), device).at(rank), digest_suffix);
  }
  /// The same for another problem, which is its own bucket, and its candidate.
  std::string store_winner(const DeviceFacts& device, const Problem& tuned, const Candidate& winner,
                           const std::string& digest_suffix = "") {
    Try each;
    each.problem = to_string(tuned);
    each.device_class = device_class(device);
    each.config = to_string(winner.config);
    each.family = winner.family->name;
    each.digest = digest(winner.family->render(winner.config, tuned)) + digest_suffix;
    each.measurement.time_us = 12.5;
    each.measurement.samples = 7;
    Cache cache(database());
    cache.put({each});
    cache.finish(each.problem, each.device_class, Rigor::kFull, each.config);
    return each.config;
  }

  /// Stores the code of a config of kProblem's bucket as that of an older source; `another`: other
  /// code.
  void store_code(const DeviceFacts& device, const std::string& config,
                  const std::string& digest_suffix, bool another = false) {
    const Config parsed = parse_config(config);
    const Source source = find_family(parsed.family)->render(parsed, bucket(kProblem));
    Cubin cubin = compile(source, device.arch);
    cubin.source_digest += digest_suffix;
    if (another) cubin.bytes.back() ^= std::byte{1};
    Cache(database()).put_cubin(cubin, source.text, source.name);
  }

 private:
  fs::path folder_;
  std::mutex mutex_;
  std::string logged_;
};

}  // namespace attnforge::test
