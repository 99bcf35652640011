// merge_states_test.cpp - merge_states() on the fake driver: what is launched, and what is refused
// before anything is.
#include "attnforge/merge_states.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "tests/plan/plan_fixture.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::HasSubstr;

class MergeStatesTest : public test::PlanTest {};

constexpr StateSizes kSizes{.dtype = DType::kFp32,
                            .dtype_o = DType::kBf16,
                            .batch = 2,
                            .seqlen = 5,
                            .num_heads = 4,
                            .head_dim = 64};

/// Contiguous; the fake driver never follows the addresses.
AttentionState state_at(std::uintptr_t address) {
  return {.o = {reinterpret_cast<void*>(address), 5 * 4 * 64, 4 * 64, 64},
          .lse = {reinterpret_cast<float*>(address + 0x8000), 4 * 5, 5}};
}

TEST_F(MergeStatesTest, LaunchesOneKernelThatIsLoadedOnce) {
  Device device = open();
  const std::vector<AttentionState> parts = {state_at(0x10000), state_at(0x20000)};
  for (int i = 0; i < 3; ++i) merge_states(kSizes, parts, state_at(0x40000), device);
  EXPECT_EQ(fake_cuda().loads(), 1);
  EXPECT_EQ(fake_cuda().launches(), 3);
  EXPECT_EQ(fake_cuda().last_grid_x(), 5u) << "40 rows, 8 a block";
  const std::vector<AttentionState> many(20, state_at(0x10000));
  merge_states(kSizes, many, state_at(0x40000), device);
  EXPECT_EQ(fake_cuda().last_grid_x(), 40u) << "a block has a row of many parts";
  merge_states(kSizes, std::vector(3, state_at(0x10000)), state_at(0x40000), device);
  EXPECT_EQ(fake_cuda().loads(), 2) << "of a like number of parts, and of any sizes";
}

TEST_F(MergeStatesTest, WithoutRowsDoesNothing) {
  Device device = open();
  StateSizes none = kSizes;
  none.seqlen = 0;
  merge_states(none, std::vector{AttentionState{}}, {}, device);
  EXPECT_EQ(fake_cuda().launches(), 0);
}

TEST_F(MergeStatesTest, SaysWhatIsWrongBeforeALaunch) {
  Device device = open();
  const AttentionState good = state_at(0x10000);
  const auto refused = [&](const StateSizes& sizes, const std::vector<AttentionState>& parts,
                           const AttentionState& result) {
    const Error error = error_of([&] { merge_states(sizes, parts, result, device); });
    EXPECT_TRUE(error.code() == ErrorCode::kInvalidArgument ||
                error.code() == ErrorCode::kInvalidProblem);
    return std::string(error.what());
  };
  EXPECT_THAT(refused(kSizes, {}, good), HasSubstr("0 parts; it merges 1 to 32"));
  EXPECT_THAT(refused(kSizes, std::vector(33, good), good), HasSubstr("33 parts"));
  StateSizes odd = kSizes;
  odd.head_dim = 60;
  EXPECT_THAT(refused(odd, {good}, good), HasSubstr("head_dim=60"));
  StateSizes negative = kSizes, huge = kSizes;
  negative.batch = -1;
  EXPECT_THAT(refused(negative, {good}, good), HasSubstr("batch=-1"));
  huge.batch = huge.seqlen = 1 << 20;
  EXPECT_THAT(refused(huge, {good}, good), HasSubstr("rows"));
  AttentionState no_o = good, no_lse = good, misaligned = good, odd_lse = good;
  no_o.o.data = nullptr;
  no_lse.lse.data = nullptr;
  misaligned.o.data = reinterpret_cast<void*>(std::uintptr_t{0x10002});
  odd_lse.lse.data = reinterpret_cast<float*>(std::uintptr_t{0x10002});
  EXPECT_THAT(refused(kSizes, {good, no_o}, good), HasSubstr("o of part 1 is null"));
  EXPECT_THAT(refused(kSizes, {no_lse}, good), HasSubstr("lse of part 0 is null"));
  EXPECT_THAT(refused(kSizes, {misaligned}, good), HasSubstr("part 0"));
  EXPECT_THAT(refused(kSizes, {odd_lse}, good), HasSubstr("multiple of 4 bytes"));
  EXPECT_THAT(refused(kSizes, {good}, no_o), HasSubstr("tensor o is null"));
  EXPECT_EQ(fake_cuda().launches(), 0);
  merge_states(kSizes, std::vector{good}, no_lse, device);
  EXPECT_EQ(fake_cuda().launches(), 1) << "the result's lse is not asked for";
}

TEST_F(MergeStatesTest, IsNotReadyWhereCompilingIsForbidden) {
  Device device = open();
  const std::vector<AttentionState> parts = {state_at(0x10000), state_at(0x20000)};
  const AttentionState result = state_at(0x40000);
  EXPECT_EQ(error_of([&] { merge_states(kSizes, parts, result, device, nullptr, false); }).code(),
            ErrorCode::kNotReady);
  merge_states(kSizes, parts, result, device);
  merge_states(kSizes, parts, result, device, nullptr, false);
  Device later = open();
  merge_states(kSizes, parts, result, later, nullptr, false);  // from the database
  EXPECT_EQ(fake_cuda().launches(), 3);
}

}  // namespace
}  // namespace attnforge
