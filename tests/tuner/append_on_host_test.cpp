// append_on_host_test.cpp - append problems as the tuner proves them, with the kernel on threads of
// the host: made-up lengths and pages, what a launch decides, and the comparison of all outputs.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/tensors/operands.h"
#include "reference/half.h"
#include "reference/parts/append.h"
#include "runtime/bind_arguments.h"
#include "templates/registry.h"
#include "tuner/append_oracle.h"
#include "tuner/made_up_tables.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/ops/append_kv/kernel.cuh"
// clang-format on

namespace attnforge {
namespace {

/// Random rows and caches beside the tables that a tuning run makes up.
HostTensors made_up(const Problem& problem, unsigned seed) {
  HostTensors host;
  set_made_up_tables(problem, host, seed);
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  for (const Operand& operand : operands(problem)) {
    if (operand.role == Operand::Role::kTable) {
      EXPECT_TRUE(operand.content(host).size() == operand.bytes() || operand.may_be_longer)
          << operand.name << " has " << operand.content(host).size() << " bytes";
      continue;
    }
    operand.resize(host, operand.bytes());
    for (std::int64_t i = 0; i < operand.elements; ++i)
      store_element(operand.dtype, operand.in_host(host).data(), i, normal(random));
  }
  return host;
}

struct Bound {
  std::vector<std::uint64_t> words;
  Tensors tensors;

  Bound(const Problem& problem, HostTensors& host) {
    std::vector<void*> addresses;
    const std::vector<Operand> list = operands(problem);
    for (const Operand& operand : list) addresses.push_back(operand.in_host(host).data());
    tensors = bound_tensors(problem, list, addresses, host, words);
  }
};

/// Runs each config's launch; kShape and kAlignment are those of the text.
template <AppendShape kShape, int kAlignment>
void expect_right(const char* text) {
  SCOPED_TRACE(text);
  const Problem problem = parse_problem(text);
  const HostTensors before = made_up(problem, 3);
  HostTensors expected = before;
  reference_append(problem, Bound(problem, expected).tensors);
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("append_kv");
  const std::vector<Candidate> configs = candidates(family, problem, device);
  ASSERT_FALSE(configs.empty());
  Launch launch = family.launch(configs.front().config, problem, device);
  ASSERT_EQ(launch.steps.size(), 1u);
  LaunchStep& step = launch.steps[0];
  HostTensors got = before;
  AppendCounters counters{};
  bind_arguments(step.args, step.from_workspace, Bound(problem, got).tensors,
                 {.counters = &counters}, step.params);
  AppendParams params{};
  ASSERT_EQ(step.params.size(), sizeof(params));
  std::memcpy(&params, step.params.data(), sizeof(params));
  test::run_on_host(step.grid.x, step.block.x, [&] { AppendKv<kShape, kAlignment>::run(params); });
  for (const Comparison& each : compare_append(problem, got, expected))
    EXPECT_TRUE(each.passed() && each.elements > 0) << to_string(each);
  EXPECT_NE(std::memcmp(got.k_cache.data(), before.k_cache.data(), got.k_cache.size()), 0)
      << "some rows are new";
  EXPECT_EQ(counters.arrived, 0u);
}

TEST(AppendOnTheHost, IsWhatTheReferenceSays) {
  expect_right<AppendShape{kBf16, 128, 128, kRopeHalf, 128}, 16>(
      "append bf16 batch=9 num_heads=32:8 seqlen=1:64 head_dim=128 page_size=16 rope=half queries "
      "lengths_after");
  expect_right<AppendShape{kFp16, 128, 128, kRopeInterleaved, 64}, 2>(
      "append fp16 batch=4 num_heads=8:2 seqlen=5:100 head_dim=128 rope=interleaved rope_dim=64 "
      "queries alignment=2");
  expect_right<AppendShape{kFp16, 72, 40, kRopeHalf, 72}, 8>(
      "append fp16 batch=9 num_heads=2 seqlen=40:300 head_dim=72:40 lengths=packed tokens=90 "
      "rope=half alignment=8 lengths_after");
  expect_right<AppendShape{kFp32, 512, 256, kRopeHalf, 512}, 4>(
      "append fp32 batch=2 num_heads=3 seqlen=2:64 head_dim=512:256 rope=half alignment=4");
  expect_right<AppendShape{kBf16, 128, 128, kNoRope, 0}, 16>(
      "append bf16 num_heads=8 seqlen=300:310 head_dim=128 page_size=128 lengths=packed "
      "lengths_after");
}

TEST(AppendOnTheHost, HeadsOfQueriesAreAnyNumber) {
  expect_right<AppendShape{kFp32, 40, 72, kRopeInterleaved, 8}, 4>(
      "append fp32 batch=3 num_heads=5:3 seqlen=2:64 head_dim=40:72 rope=interleaved rope_dim=8 "
      "queries alignment=4");
  expect_right<AppendShape{kFp32, 40, 72, kRopeInterleaved, 8}, 4>(
      "append fp32 batch=3 num_heads=2:3 seqlen=2:64 head_dim=40:72 rope=interleaved rope_dim=8 "
      "queries alignment=4");
}

/// No row is written of a sequence whose length is no length.
TEST(AppendOnTheHost, TheReferenceWritesNothingForANegativeLength) {
  const Problem problem = parse_problem("append fp32 batch=2 seqlen=3:8 head_dim=8");
  HostTensors host = made_up(problem, 1);
  host.lengths_kv = {-1, 8};
  const std::vector<std::byte> k = host.k_cache, v = host.v_cache;
  reference_append(problem, Bound(problem, host).tensors);
  EXPECT_EQ(host.k_cache, k);
  EXPECT_EQ(host.v_cache, v);
}

}  // namespace
}  // namespace attnforge
