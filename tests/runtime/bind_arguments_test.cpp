// bind_arguments_test.cpp - every kind of part of a kernel's argument lands where the step says,
// with the pointers of the run; on the fake driver.
#include "runtime/bind_arguments.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <vector>

#include "attnforge/error.h"
#include "runtime/driver.h"
#include "runtime/tensor_map.h"
#include "templates/base_params.h"
#include "tests/support/fake_cuda.h"

namespace attnforge {
namespace {

using test::fake_cuda;

void* address(std::uintptr_t value) { return reinterpret_cast<void*>(value); }

class BindArgumentsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fake_cuda().reset();
    ASSERT_EQ(driver_problem(), "");
  }
  /// A step whose argument of `bytes` is 0x5a all over.
  static LaunchStep step_of(std::size_t bytes, const std::vector<ArgumentField>& parts) {
    LaunchStep step;
    step.params.assign(bytes, std::byte{0x5a});
    step.args = parts;
    return step;
  }
  static std::vector<std::byte> bind(const LaunchStep& step, const Tensors& tensors = {},
                                     const RunMemory& memory = {}) {
    std::vector<std::byte> params = step.params;
    bind_arguments(step.args, step.from_workspace, tensors, memory, params);
    return params;
  }
  /// Puts what the launch decides to where a run fills it up.
  template <class Planned>
  static LaunchStep with(LaunchStep step, std::size_t offset, const Planned& planned) {
    std::memcpy(step.params.data() + offset, &planned, sizeof(planned));
    return step;
  }
  template <class Part>
  static Part at(const std::vector<std::byte>& params, std::size_t offset) {
    Part part;
    std::memcpy(&part, params.data() + offset, sizeof(part));
    return part;
  }
  /// Bytes outside of [begin, end) are the step's.
  static void expect_rest_kept(const std::vector<std::byte>& params, std::size_t begin,
                               std::size_t end) {
    for (std::size_t i = 0; i < params.size(); ++i) {
      if (i >= begin && i < end) continue;
      EXPECT_EQ(params[i], std::byte{0x5a}) << i;
    }
  }
  static TensorMapSpec map_of(TensorMapSpec::Operand operand) {
    return {.operand = operand, .columns = 64, .box_columns = 64, .box_rows = 80};
  }
};

TEST_F(BindArgumentsTest, PointersAndStridesGoToFwdParamsAndSizesStay) {
  FwdParams planned{};
  planned.seqlen_q = 8;
  planned.softmax_scale = 0.5f;
  const LaunchStep step = with(step_of(16 + sizeof(FwdParams) + 16, {{16, FwdArgument{}}}), 16,
                               planned);
  float memory[5];
  const Tensors tensors{.q = {&memory[0], 1, 2, 3},
                        .k = {&memory[1], 4, 5, 6},
                        .v = {&memory[2], 7, 8, 9},
                        .o = {&memory[3], 10, 11, 12},
                        .lse = {&memory[4], 13, 14}};
  const std::vector<std::byte> params = bind(step, tensors);
  const auto bound = at<FwdParams>(params, 16);
  EXPECT_EQ(bound.seqlen_q, 8);
  EXPECT_EQ(bound.softmax_scale, 0.5f);
  EXPECT_EQ(bound.q.data, &memory[0]);
  EXPECT_EQ(bound.k.data, &memory[1]);
  EXPECT_EQ(bound.k.stride_batch, 4);
  EXPECT_EQ(bound.v.data, &memory[2]);
  EXPECT_EQ(bound.v.stride_row, 8);
  EXPECT_EQ(bound.v.stride_head, 9);
  EXPECT_EQ(bound.o.data, &memory[3]);
  EXPECT_EQ(bound.lse, &memory[4]);
  EXPECT_EQ(bound.lse_stride_batch, 13);
  EXPECT_EQ(bound.lse_stride_head, 14);
  expect_rest_kept(params, 16, 16 + sizeof(FwdParams));
}

TEST_F(BindArgumentsTest, TensorsThatAStepBeforeWroteComeFromTheWorkspaceInAllParts) {
  using Operand = TensorMapSpec::Operand;
  float memory[3];
  const Tensors tensors{.q = {&memory[0], 1, 2, 3},
                        .k = {&memory[1], 4, 5, 6},
                        .v = {address(0x300), 4 * 64 * 100, 4 * 64, 64},
                        .o = {&memory[2], 10, 11, 12}};
  static_assert(sizeof(FwdParams) <= 256);
  LaunchStep step = step_of(256 + 2 * kTensorMapBytes,
                            {{0, FwdArgument{}},
                             {256, map_of(Operand::kK)},
                             {256 + kTensorMapBytes, map_of(Operand::kV)}});
  step = with(step, 256, TensorMapSizes{.rows = 100, .heads = 4, .batch = 2});
  step = with(step, 256 + kTensorMapBytes, TensorMapSizes{.rows = 100, .heads = 4, .batch = 2});
  step.from_workspace = {{Operand::kQ, 0x100, 70, 80, 90},
                         {Operand::kK, 0x400, 4 * 64 * 100, 256, 64}};
  const std::vector<std::byte> params = bind(step, tensors, {.workspace = address(0x10000)});
  const auto bound = at<FwdParams>(params, 0);
  EXPECT_EQ(bound.q.data, address(0x10100));
  EXPECT_EQ(bound.q.stride_batch, 70);
  EXPECT_EQ(bound.q.stride_row, 80);
  EXPECT_EQ(bound.q.stride_head, 90);
  EXPECT_EQ(bound.k.data, address(0x10400));
  EXPECT_EQ(bound.v.data, address(0x300));
  EXPECT_EQ(bound.o.data, &memory[2]);
  ASSERT_EQ(fake_cuda().encodes(), 2);
  EXPECT_EQ(fake_cuda().encode(0).address, address(0x10400));
  EXPECT_EQ(fake_cuda().encode(1).address, address(0x300));
}

TEST_F(BindArgumentsTest, AnAddressIsThatOfTheRunsTensor) {
  const float logits[2] = {};
  Tensors tensors;
  tensors.sinks = logits;
  const LaunchStep step = step_of(48, {{16, AddressArgument{&Tensors::sinks}}});
  const std::vector<std::byte> params = bind(step, tensors);
  EXPECT_EQ(at<const float*>(params, 16), logits);
  expect_rest_kept(params, 16, 24);
}

/// A part's own function sees its place with what the launch put there, and the run.
TEST_F(BindArgumentsTest, APartOfAProblemIsFilledInByItsOwnFunction) {
  const OwnArgument own{
      12, [](std::span<std::byte> place, const Tensors& tensors, const RunMemory& memory) {
        EXPECT_EQ(place.size(), 12u);
        EXPECT_EQ(memory.workspace, address(0x10000));
        const std::int32_t numbers[2] = {static_cast<std::int32_t>(place[0]),
                                         static_cast<std::int32_t>(tensors.lengths.tokens_q)};
        std::memcpy(place.data(), numbers, sizeof(numbers));
      }};
  Tensors tensors;
  tensors.lengths.tokens_q = 77;
  const std::vector<std::byte> params = bind(step_of(48, {{16, own}}), tensors,
                                             {.workspace = address(0x10000)});
  EXPECT_EQ(at<std::int32_t>(params, 16), 0x5a);
  EXPECT_EQ(at<std::int32_t>(params, 20), 77);
  expect_rest_kept(params, 16, 24);
}

TEST_F(BindArgumentsTest, ScratchIsAnAddressInTheWorkspace) {
  const std::vector<std::byte> params = bind(
      with(step_of(32, {{8, ScratchArgument{}}}), 8, std::size_t{0x300}), {},
      {.workspace = address(0x10000)});
  EXPECT_EQ(at<void*>(params, 8), address(0x10300));
  expect_rest_kept(params, 8, 16);
}

TEST_F(BindArgumentsTest, CountersMustBeThere) {
  int counters[8];
  const LaunchStep step = step_of(32, {{8, CountersArgument{}}});
  const std::vector<std::byte> params = bind(step, {}, {.counters = counters});
  EXPECT_EQ(at<int*>(params, 8), counters);
  expect_rest_kept(params, 8, 16);
  EXPECT_THROW(bind(step), Error);
}

TEST_F(BindArgumentsTest, TensorMapsTakeTheirOwnTensorsAndTheSizesInTheirPlace) {
  using Operand = TensorMapSpec::Operand;
  Tensors tensors;
  tensors.q = tensors.k = tensors.v = {nullptr, 100 * 4 * 64, 4 * 64, 64};
  tensors.q.data = address(0x100), tensors.k.data = address(0x200), tensors.v.data = address(0x300);
  LaunchStep step = step_of(64 + 2 * kTensorMapBytes, {{64 + kTensorMapBytes, map_of(Operand::kV)},
                                                       {64, map_of(Operand::kK)}});
  step = with(step, 64, TensorMapSizes{.rows = 100, .heads = 4, .batch = 2});
  step = with(step, 64 + kTensorMapBytes, TensorMapSizes{.rows = 101, .heads = 4, .batch = 3});
  const std::vector<std::byte> params = bind(step, tensors);
  ASSERT_EQ(fake_cuda().encodes(), 2);
  EXPECT_EQ(fake_cuda().encode(0).address, address(0x300));
  EXPECT_EQ(fake_cuda().encode(0).extents[1], 101u);
  EXPECT_EQ(fake_cuda().encode(0).extents[3], 3u);
  EXPECT_EQ(fake_cuda().encode(1).address, address(0x200));
  EXPECT_EQ(fake_cuda().encode(1).extents[1], 100u);
  for (std::size_t i = 0; i < params.size(); ++i) {
    const int expected = i < 64 ? 0x5a : i < 64 + kTensorMapBytes ? 2 : 1;
    EXPECT_EQ(params[i], std::byte(expected)) << i;
  }
}

TEST_F(BindArgumentsTest, PartOutsideOfTheArgumentIsAMistakeOfTheFamily) {
  int counters[8];
  const RunMemory memory{.workspace = counters, .counters = counters};
  const auto refused = [&](const LaunchStep& step) {
    try {
      bind(step, {}, memory);
      ADD_FAILURE() << "no error was thrown";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInternal);
    }
  };
  refused(step_of(sizeof(FwdParams) - 1, {{0, FwdArgument{}}}));
  refused(step_of(31, {{8, OwnArgument{24, nullptr}}}));
  refused(step_of(15, {{8, ScratchArgument{}}}));
  refused(step_of(15, {{8, CountersArgument{}}}));
  refused(step_of(kTensorMapBytes, {{64, map_of(TensorMapSpec::Operand::kK)}}));
  refused(step_of(8, {{~std::size_t{0}, CountersArgument{}}}));
  EXPECT_EQ(fake_cuda().encodes(), 0);
}

}  // namespace
}  // namespace attnforge
