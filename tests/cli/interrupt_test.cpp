#include "cli/interrupt.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace attnforge::cli {
namespace {

TEST(Interrupt, TheFirstOneIsNoted) {
  {
    const InterruptScope scope;
    EXPECT_FALSE(interrupted());
    raise(SIGINT);
    EXPECT_TRUE(interrupted());
  }
  const InterruptScope next;
  EXPECT_FALSE(interrupted()) << "a new scope begins anew";
  raise(SIGTERM);
  EXPECT_TRUE(interrupted());
}

TEST(InterruptDeathTest, TheSecondOneEndsTheProgram) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        const InterruptScope scope;
        raise(SIGINT);
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

TEST(InterruptDeathTest, WithoutAScopeOneEndsTheProgram) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_EXIT(
      {
        { const InterruptScope scope; }
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace attnforge::cli
