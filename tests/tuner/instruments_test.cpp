// What of the tuner's own kernels can be tested without a GPU: that NVRTC takes them, and the
// arithmetic of clocks.
#include "tuner/instruments.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

TEST(Instruments, CompileForEveryArchThatNvrtcKnows) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  int compiled = 0;
  for (const Arch& arch : archs()) {
    const std::vector<int>& known = nvrtc_facts().archs;
    if (std::find(known.begin(), known.end(), arch.sm) == known.end()) continue;
    const test::Compiled kernels = test::compiled(instruments_source(), arch);
    EXPECT_GT(kernels.code_bytes, 1000) << arch.name;
    EXPECT_EQ(kernels.spill_store_bytes, 0) << arch.name;
    ++compiled;
  }
  EXPECT_GE(compiled, 3);
}

TEST(ClockMhz, MedianOverTheSmsInBoth) {
  std::vector<ClockStamp> before(4), after(4);
  before[0] = {1, 1000, 5000};
  after[0] = {1, 1000 + 1'500'000, 5000 + 1'000'000};  // 1500 MHz
  before[1] = {1, 77, 6000};
  after[1] = {1, 77 + 1'600'000, 6000 + 1'000'000};
  before[2] = {1, 5, 7000};
  after[2] = {1, 5 + 1'700'000, 7000 + 1'000'000};
  before[3] = {0, 0, 0};  // no block came to this SM
  after[3] = {1, 9'000'000, 1'000'000};
  EXPECT_DOUBLE_EQ(clock_mhz(before, after), 1600);
}

TEST(ClockMhz, UnknownWhenTooShortOrNowhere) {
  std::vector<ClockStamp> before(1), after(1);
  EXPECT_EQ(clock_mhz(before, after), 0);
  before[0] = {1, 1000, 5000};
  after[0] = {1, 2000, 6000};
  EXPECT_EQ(clock_mhz(before, after), 0);
}

}  // namespace
}  // namespace attnforge
