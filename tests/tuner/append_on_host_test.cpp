// append_on_host_test.cpp - append problems as the tuner proves them, with the kernel on threads of
// the host: made-up lengths and pages, what a launch decides, and the comparison of all outputs.
#include <gtest/gtest.h>

#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/tensors/operands.h"
#include "reference/parts/append.h"
#include "runtime/bind_arguments.h"
#include "templates/registry.h"
#include "tests/support/appended_caches.h"
#include "tuner/append_oracle.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "templates/ops/append_kv/kernel.cuh"
// clang-format on

namespace attnforge {
namespace {

using test::made_up;

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

/// What the family's first config makes of the tensors; kShape and kAlignment are the problem's.
template <AppendShape kShape, int kAlignment>
HostTensors appended(const Problem& problem, HostTensors host, bool heads_first = false) {
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("append_kv");
  const std::vector<Candidate> configs = candidates(family, problem, device);
  Launch launch = family.launch(configs.at(0).config, problem, device);
  LaunchStep& step = launch.steps.at(0);
  AppendCounters counters{};
  if (heads_first) test::exchange_caches(problem, host, false);
  Bound bound(problem, host);
  if (heads_first) test::set_heads_first(problem, bound.tensors);
  bind_arguments(step.args, step.from_workspace, bound.tensors, {.counters = &counters},
                 step.params);
  AppendParams params{};
  EXPECT_EQ(step.params.size(), sizeof(params));
  std::memcpy(&params, step.params.data(), sizeof(params));
  test::run_on_host(step.grid.x, step.block.x, [&] { AppendKv<kShape, kAlignment>::run(params); });
  EXPECT_EQ(counters.arrived, 0u);
  if (heads_first) test::exchange_caches(problem, host, true);
  return host;
}

template <AppendShape kShape, int kAlignment>
void expect_right(const char* text) {
  SCOPED_TRACE(text);
  const Problem problem = parse_problem(text);
  const HostTensors before = made_up(problem, 3);
  HostTensors expected = before;
  reference_append(problem, Bound(problem, expected).tensors);
  const HostTensors got = appended<kShape, kAlignment>(problem, before);
  for (const Comparison& each : compare_append(problem, got, expected))
    EXPECT_TRUE(each.passed() && each.elements > 0) << to_string(each);
  EXPECT_NE(std::memcmp(got.k_cache.data(), before.k_cache.data(), got.k_cache.size()), 0)
      << "some rows are new";
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

// ---- Caches of 8 and 4 bits ----

template <AppendShape kShape, int kAlignment>
void expect_two_steps(const char* text, bool heads_first = false) {
  SCOPED_TRACE(text);
  const Problem problem = parse_problem(text);
  constexpr AppendShape kPlain{kShape.dtype, kShape.head_dim, kShape.head_dim_v, kShape.rope,
                               kShape.rope_dim};
  test::expect_two_steps(problem, 5, [&](const Problem& of, HostTensors host) {
    return has_low_bit_kv(of) ? appended<kShape, kAlignment>(of, std::move(host), heads_first)
                              : appended<kPlain, kAlignment>(of, std::move(host));
  });
}

TEST(AppendOnTheHost, ScalesOfRowsAreThoseOfTheirLargest) {
  expect_two_steps<AppendShape{kBf16, 128, 128, kNoRope, 0, kInt8, kInt8, kScaleToken}, 16>(
      "append bf16 k=int8 v=int8 kv_scale=token batch=9 num_heads=8 seqlen=1:64 head_dim=128 "
      "page_size=16 lengths_after");
  expect_two_steps<AppendShape{kFp16, 72, 40, kNoRope, 0, kInt4, kE4m3, kScaleToken}, 4>(
      "append fp16 k=int4 v=e4m3 kv_scale=token batch=4 num_heads=3 seqlen=5:90 head_dim=72:40 "
      "alignment=4 lengths=packed tokens=17");
  expect_two_steps<AppendShape{kBf16, 8, 16, kNoRope, 0, kE5m2, kInt4, kScaleToken}, 2>(
      "append bf16 k=e5m2 v=int4 kv_scale=token batch=3 num_heads=5 seqlen=4:30 head_dim=8:16 "
      "alignment=2");
  expect_two_steps<AppendShape{kFp16, 512, 264, kNoRope, 0, kInt4, kInt8, kScaleToken}, 8>(
      "append fp16 k=int4 v=int8 kv_scale=token batch=2 num_heads=2 seqlen=7:30 head_dim=512:264 "
      "alignment=8");
}
TEST(AppendOnTheHost, GroupsOfColumnsHaveScalesOfTheirOwn) {
  expect_two_steps<AppendShape{kBf16, 128, 128, kNoRope, 0, kInt4, kInt4, kScaleGroup32}, 16>(
      "append bf16 k=int4 v=int4 kv_scale=group32 batch=4 num_heads=4 seqlen=3:64 head_dim=128 "
      "page_size=8");
  expect_two_steps<AppendShape{kFp16, 72, 512, kNoRope, 0, kE4m3, kInt4, kScaleGroup32 + 1}, 4>(
      "append fp16 k=e4m3 v=int4 kv_scale=group64 batch=4 num_heads=3 seqlen=2:30 head_dim=72:512 "
      "alignment=4");
  expect_two_steps<AppendShape{kBf16, 264, 128, kNoRope, 0, kE5m2, kE4m3, kScaleGroup32 + 2}, 8>(
      "append bf16 k=e5m2 v=e4m3 kv_scale=group128 batch=2 num_heads=1 seqlen=9:30 "
      "head_dim=264:128 alignment=8");
}
TEST(AppendOnTheHost, WhatIsQuantisedIsRotatedAndRoundedBefore) {
  expect_two_steps<AppendShape{kBf16, 128, 128, kRopeHalf, 128, kInt8, kInt8, kScaleToken}, 16>(
      "append bf16 k=int8 v=int8 kv_scale=token batch=9 num_heads=16:4 seqlen=1:64 head_dim=128 "
      "page_size=16 rope=half queries lengths_after");
  expect_two_steps<AppendShape{kFp16, 128, 64, kRopeHalf, 96, kInt4, kInt4, kScaleGroup32}, 16>(
      "append fp16 k=int4 v=int4 kv_scale=group32 batch=4 num_heads=4 seqlen=3:64 "
      "head_dim=128:64 rope=half rope_dim=96");
  expect_two_steps<AppendShape{kBf16, 256, 72, kRopeHalf, 24, kE4m3, kInt8, kScaleGroup32 + 1}, 4>(
      "append bf16 k=e4m3 v=int8 kv_scale=group64 batch=3 num_heads=2 seqlen=3:64 "
      "head_dim=256:72 rope=half rope_dim=24 alignment=4");
  expect_two_steps<AppendShape{kFp16, 96, 512, kRopeInterleaved, 48, kInt8, kE5m2, kScaleGroup32},
                   16>(
      "append fp16 k=int8 v=e5m2 kv_scale=group32 batch=3 num_heads=6:2 seqlen=3:64 "
      "head_dim=96:512 rope=interleaved rope_dim=48 queries");
  expect_two_steps<AppendShape{kBf16, 512, 64, kRopeHalf, 512, kInt4, kInt4, kScaleGroup32}, 16>(
      "append bf16 k=int4 v=int4 kv_scale=group32 batch=2 num_heads=2 seqlen=5:64 "
      "head_dim=512:64 rope=half");
}
TEST(AppendOnTheHost, ZeroPointsAreThoseOfRanges) {
  expect_two_steps<AppendShape{kBf16, 128, 128, kNoRope, 0, kInt4, kInt4, kScaleToken, 1}, 16>(
      "append bf16 k=int4 v=int4 kv_scale=token kv_zero batch=9 num_heads=8 seqlen=1:64 "
      "head_dim=128 page_size=16 lengths_after");
  expect_two_steps<AppendShape{kFp16, 72, 264, kNoRope, 0, kInt4, kInt4, kScaleGroup32 + 1, 1}, 4>(
      "append fp16 k=int4 v=int4 kv_scale=group64 kv_zero batch=4 num_heads=3 seqlen=5:90 "
      "head_dim=72:264 alignment=4 lengths=packed tokens=17");
  expect_two_steps<AppendShape{kFp16, 128, 64, kRopeHalf, 96, kInt4, kInt4, kScaleGroup32, 1}, 16>(
      "append fp16 k=int4 v=int4 kv_scale=group32 kv_zero batch=4 num_heads=4 seqlen=3:64 "
      "head_dim=128:64 rope=half rope_dim=96");
  expect_two_steps<AppendShape{kBf16, 512, 64, kRopeHalf, 512, kInt4, kBf16, kScaleGroup32, 1}, 16>(
      "append bf16 k=int4 v=bf16 kv_scale=group32 kv_zero batch=2 num_heads=2 seqlen=5:64 "
      "head_dim=512:64 rope=half");
  expect_two_steps<AppendShape{kBf16, 8, 16, kNoRope, 0, kInt4, kInt4, kScaleToken, 1}, 2>(
      "append bf16 k=int4 v=int4 kv_scale=token kv_zero batch=3 num_heads=5 seqlen=4:30 "
      "head_dim=8:16 alignment=2",
      true);
  expect_right<AppendShape{kBf16, 128, 128, kRopeHalf, 128, kInt4, kInt4, kScaleToken, 1}, 16>(
      "append bf16 k=int4 v=int4 kv_scale=token kv_zero batch=9 num_heads=8 seqlen=2:64 "
      "head_dim=128 page_size=16 rope=half");
}
TEST(AppendOnTheHost, GivenScalesAreRead) {
  expect_two_steps<AppendShape{kBf16, 128, 64, kNoRope, 0, kInt8, kE4m3, kScaleHead}, 16>(
      "append bf16 k=int8 v=e4m3 kv_scale=head batch=3 num_heads=4 seqlen=3:64 head_dim=128:64");
  expect_two_steps<AppendShape{kFp16, 64, 64, kRopeHalf, 64, kE5m2, kInt4, kScaleTensor}, 16>(
      "append fp16 k=e5m2 v=int4 kv_scale=tensor batch=3 num_heads=4 seqlen=3:64 head_dim=64 "
      "page_size=16 rope=half");
}
TEST(AppendOnTheHost, WithoutScalesNumbersAreRounded) {
  expect_two_steps<AppendShape{kBf16, 128, 64, kNoRope, 0, kE4m3, kInt8, kNoScale}, 16>(
      "append bf16 k=e4m3 v=int8 batch=3 num_heads=4 seqlen=3:64 head_dim=128:64");
}
TEST(AppendOnTheHost, TheOtherCacheMayStayAsItIs) {
  expect_two_steps<AppendShape{kBf16, 512, 128, kNoRope, 0, kBf16, kE4m3, kScaleToken}, 16>(
      "append bf16 k=bf16 v=e4m3 kv_scale=token batch=3 num_heads=4 seqlen=3:64 head_dim=512:128");
  expect_two_steps<AppendShape{kFp16, 64, 40, kRopeHalf, 64, kInt8, kFp16, kScaleGroup32}, 16>(
      "append fp16 k=int8 v=fp16 kv_scale=group32 batch=3 num_heads=4 seqlen=3:64 "
      "head_dim=64:40 rope=half");
}
TEST(AppendOnTheHost, CachesOfFewerBitsHaveAnyStrides) {
  expect_two_steps<AppendShape{kBf16, 128, 64, kNoRope, 0, kInt4, kInt8, kScaleGroup32}, 16>(
      "append bf16 k=int4 v=int8 kv_scale=group32 batch=3 num_heads=4 seqlen=3:64 head_dim=128:64 "
      "page_size=16",
      true);
  expect_two_steps<AppendShape{kFp16, 72, 40, kRopeHalf, 16, kE4m3, kInt4, kScaleToken}, 4>(
      "append fp16 k=e4m3 v=int4 kv_scale=token batch=3 num_heads=3 seqlen=3:64 head_dim=72:40 "
      "rope=half rope_dim=16 alignment=4 lengths=packed tokens=9",
      true);
}
TEST(AppendOnTheHost, QuantisedRowsAreWhatTheReferenceSays) {
  expect_right<AppendShape{kBf16, 128, 128, kNoRope, 0, kInt8, kInt4, kScaleToken}, 16>(
      "append bf16 k=int8 v=int4 kv_scale=token batch=9 num_heads=8 seqlen=2:64 head_dim=128 "
      "page_size=16 lengths_after");
  expect_right<AppendShape{kBf16, 128, 128, kRopeHalf, 128, kE4m3, kInt8, kScaleToken}, 16>(
      "append bf16 k=e4m3 v=int8 kv_scale=token batch=9 num_heads=8 seqlen=2:64 head_dim=128 "
      "page_size=16 rope=half");
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
