// clear_rest_test.cpp - attnforge_clear_rest() on the fake driver: what is launched, what is
// refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <vector>

#include "attnforge/c.h"
#include "plan/context_scope.h"
#include "tests/plan/plan_fixture.h"
#include "tests/support/captured_graph.h"

namespace attnforge {
namespace {

using test::fake_cuda;
using ::testing::HasSubstr;

class ClearRestTest : public test::PlanTest {
 protected:
  void SetUp() override {
    test::PlanTest::SetUp();
    attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
    desc.cache_path = ":memory:";
    ASSERT_EQ(attnforge_context_create(&desc, &context_), ATTNFORGE_OK) << attnforge_last_error();
  }
  void TearDown() override {
    attnforge_context_destroy(context_);
    test::PlanTest::TearDown();
  }

  attnforge_status clear(const std::vector<attnforge_rest>& arrays) {
    return attnforge_clear_rest(context_, arrays.data(), arrays.size(), nullptr);
  }
  attnforge_context* context_ = nullptr;
};

/// The fake driver never follows the addresses.
template <class Value>
Value* at(std::uintptr_t address) {
  return reinterpret_cast<Value*>(address);
}
const attnforge_rest kRows{at<void>(0x10000), at<int>(0x20004), 8192, 7168, 1};
const attnforge_rest kLse{at<void>(0x30000), at<int>(0x20004), 8192, 4, 28};

TEST_F(ClearRestTest, IsOneLaunchWhoseKernelIsLoadedOnce) {
  const int launches = fake_cuda().launches();
  for (int i = 0; i < 3; ++i) ASSERT_EQ(clear({kRows, kLse}), ATTNFORGE_OK);
  EXPECT_EQ(fake_cuda().launches(), launches + 3);
  EXPECT_EQ(fake_cuda().loads(), 1);
  EXPECT_EQ(fake_cuda().last_grid_x() % 2, 0u);
}

TEST_F(ClearRestTest, IsCapturedAfterAFirstCall) {
  ASSERT_EQ(clear({kRows}), ATTNFORGE_OK);
  Device device = open();
  const ContextScope scope(state_of(device).context);
  const Stream stream;
  const Graph graph(stream, [&](CUstream captured) {
    EXPECT_EQ(attnforge_clear_rest(context_, &kLse, 1, captured), ATTNFORGE_OK)
        << attnforge_last_error();
  });
}

TEST_F(ClearRestTest, OfNothingLaunchesNothing) {
  const int launches = fake_cuda().launches();
  attnforge_rest none = kRows;
  none.rows = 0;
  none.data = nullptr;
  EXPECT_EQ(clear({}), ATTNFORGE_OK);
  EXPECT_EQ(clear({none, none}), ATTNFORGE_OK);
  EXPECT_EQ(fake_cuda().launches(), launches);
}

TEST_F(ClearRestTest, RefusesWhatItCouldNotWrite) {
  const auto expect_refused = [&](attnforge_rest wrong) {
    EXPECT_EQ(clear({kRows, wrong}), ATTNFORGE_ERR_INVALID);
    EXPECT_THAT(attnforge_last_error(), HasSubstr("arrays[1] is at"));
  };
  attnforge_rest wrong = kRows;
  wrong.data = nullptr;
  expect_refused(wrong);
  wrong = kRows, wrong.begin = nullptr;
  expect_refused(wrong);
  wrong = kRows, wrong.data = at<void>(0x10002);
  expect_refused(wrong);
  wrong = kRows, wrong.row_bytes = 6;
  expect_refused(wrong);
  wrong = kRows, wrong.rows = -1;
  expect_refused(wrong);
  EXPECT_EQ(clear(std::vector<attnforge_rest>(9, kRows)), ATTNFORGE_ERR_INVALID);
  EXPECT_EQ(attnforge_clear_rest(nullptr, &kRows, 1, nullptr), ATTNFORGE_ERR_INVALID);
}

}  // namespace
}  // namespace attnforge
