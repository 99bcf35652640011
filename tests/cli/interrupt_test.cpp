#include "cli/terminal/terminal.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <thread>

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

// As the threads of `tune --gpu all` ask; ThreadSanitizer watches how they are told.
TEST(Interrupt, OtherThreadsSeeIt) {
  using Clock = std::chrono::steady_clock;
  const InterruptScope scope;
  bool seen = false;
  std::thread other([&] {
    const Clock::time_point give_up = Clock::now() + std::chrono::seconds(20);
    while (!(seen = interrupted()) && Clock::now() < give_up) std::this_thread::yield();
  });
  raise(SIGINT);
  other.join();
  EXPECT_TRUE(seen);
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
        signal(SIGINT, SIG_DFL);  // a test run by nohup or in the background ignores it
        { const InterruptScope scope; }
        raise(SIGINT);
      },
      testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace attnforge::cli
