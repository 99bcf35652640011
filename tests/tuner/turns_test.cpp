// turns_test.cpp - searches on one GPU at once, of which one runs kernels at a time.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <utility>
#include <vector>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "tuner/trials/turns.h"

namespace attnforge {
namespace {

using std::chrono::milliseconds;

/// What all trials of a test share: how many are at work, and who was, in order.
struct Gpu {
  std::atomic<int> at_work = 0;
  std::atomic<bool> two_at_once = false;
  std::vector<int> order;  // guarded by the turns themselves
  std::size_t code = 0;    // of the last get_ready()

  void work(int who) {
    two_at_once = two_at_once || at_work++ > 0;
    order.push_back(who);
    std::this_thread::sleep_for(milliseconds(1));
    --at_work;
  }
};

class FakeTrials : public Trials {
 public:
  FakeTrials(Gpu& gpu, int who, int steps_to_ready) : gpu_(gpu), who_(who), left_(steps_to_ready) {}
  ~FakeTrials() override { gpu_.work(-who_); }
  bool start() override { return true; }
  bool get_ready(const OwnCode& code) override {
    gpu_.work(who_);
    gpu_.code = code.size();
    if (left_ < 0) throw Error(ErrorCode::kCuda, "memory is short");
    return --left_ <= 0;
  }
  Measurement load(const Candidate&, const Compiled&, double) override { return run(); }
  Measurement prove(const Config&) override { return run(); }
  std::vector<double> sample_us(std::span<const Config>, Sizes) override {
    run();
    return {};
  }
  void heat(std::span<const Config>) override { run(); }
  double clock_mhz() override { return 0; }
  void release(const Config&) override { run(); }
  const Loss* lost() const override { return nullptr; }

 private:
  Measurement run() {
    gpu_.work(who_);
    return {};
  }

  Gpu& gpu_;
  const int who_;
  int left_;
};

class TurnsTest : public ::testing::Test {
 protected:
  /// On a GPU of this test alone.
  std::unique_ptr<Trials> trials(int who, int steps_to_ready = 1, const char* uuid = "",
                                 Turns turns = Turns::kEachCall) {
    DeviceFacts device = typical_device("sm_90a");
    device.uuid = ::testing::UnitTest::GetInstance()->current_test_info()->name() +
                  std::string(uuid);
    return taking_turns(std::make_unique<FakeTrials>(gpu_, who, steps_to_ready), device, turns);
  }

  Gpu gpu_;
};

TEST_F(TurnsTest, NoTwoSearchesRunKernelsAtOnceAndNeitherGoesFirstAgainAndAgain) {
  std::atomic<int> ready = 0;
  const auto search = [&](int who) {
    const std::unique_ptr<Trials> mine = trials(who);
    ++ready;
    while (ready < 2) std::this_thread::yield();
    for (int i = 0; i < 20; ++i) mine->prove({});
    mine->release({});
  };
  { std::jthread one(search, 1), two(search, 2); }
  EXPECT_FALSE(gpu_.two_at_once);
  ASSERT_EQ(gpu_.order.size(), 46u) << "get_ready, 20 proofs, a release, and the end, of each";
  int changes = 0;
  for (std::size_t i = 1; i < gpu_.order.size(); ++i) changes += gpu_.order[i] != gpu_.order[i - 1];
  EXPECT_GT(changes, 10) << "each waits for the other while both have work";
}

TEST_F(TurnsTest, OneThatGetsReadyKeepsItsTurnAndTheOtherIsAskedLater) {
  const std::unique_ptr<Trials> one = trials(1, 2), two = trials(2);
  EXPECT_FALSE(one->get_ready({}));
  EXPECT_FALSE(two->get_ready({})) << "the first one's tensors are being made";
  EXPECT_EQ(gpu_.order, std::vector<int>({1}));
  EXPECT_TRUE(one->get_ready({}));
  EXPECT_TRUE(two->get_ready({}));
  EXPECT_TRUE(two->get_ready({}));
  EXPECT_EQ(gpu_.order, std::vector<int>({1, 1, 2})) << "what is ready is not made again";
}

TEST_F(TurnsTest, AFirstProofEndsTheTurnOfGettingReady) {
  const std::unique_ptr<Trials> one = trials(1, 2), two = trials(2);
  EXPECT_FALSE(one->get_ready({}));
  one->prove({});
  two->prove({});
  EXPECT_EQ(gpu_.order, std::vector<int>({1, 1, 1, 2, 2}));
}

TEST_F(TurnsTest, WhoWasNotLetToGetReadyHasTheCodeAllTheSame) {
  const OwnCode code = {{"kernel", {}}};
  const std::unique_ptr<Trials> one = trials(1, 2), two = trials(2);
  EXPECT_FALSE(one->get_ready(code));
  EXPECT_FALSE(two->get_ready(code));
  EXPECT_TRUE(one->get_ready(code));
  two->prove({});
  EXPECT_EQ(gpu_.order, std::vector<int>({1, 1, 2, 2}));
  EXPECT_EQ(gpu_.code, 1u) << "a worker without it would compile it in its turn";
}

TEST_F(TurnsTest, ASearchThatEndsOrFailsGivesItsTurnBack) {
  std::unique_ptr<Trials> one = trials(1, 9), failing = trials(3, -1);
  const std::unique_ptr<Trials> two = trials(2);
  EXPECT_FALSE(one->get_ready({}));
  one.reset();
  EXPECT_THROW(failing->get_ready({}), Error);
  failing.reset();
  two->prove({});
  EXPECT_EQ(gpu_.order, std::vector<int>({1, -1, 3, -3, 2, 2}));
}

TEST_F(TurnsTest, InOneContextASearchHasTheGpuToItsEnd) {
  std::unique_ptr<Trials> one = trials(1, 1, "", Turns::kToTheEnd);
  const std::unique_ptr<Trials> two = trials(2, 1, "", Turns::kToTheEnd);
  EXPECT_TRUE(one->get_ready({}));
  one->prove({});
  EXPECT_FALSE(two->get_ready({}));
  one.reset();
  EXPECT_TRUE(two->get_ready({}));
  EXPECT_EQ(gpu_.order, std::vector<int>({1, 1, -1, 2}));
}

TEST_F(TurnsTest, GpusDoNotWaitForEachOther) {
  const std::unique_ptr<Trials> one = trials(1, 9), other = trials(2, 1, "other");
  EXPECT_FALSE(one->get_ready({}));
  EXPECT_TRUE(other->get_ready({}));
}

}  // namespace
}  // namespace attnforge
