#include "tuner/search/stopping.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>
#include <vector>

namespace attnforge {
namespace {

std::vector<double> count_to(int n) {
  std::vector<double> result(n);
  std::iota(result.begin(), result.end(), 1.0);
  return result;
}

TEST(Median, OddEvenEmpty) {
  EXPECT_EQ(median(std::vector<double>{3, 1, 2}), 2);
  EXPECT_EQ(median(std::vector<double>{4, 1, 2, 3}), 2.5);
  EXPECT_TRUE(std::isnan(median({})));
}

TEST(RelativeIqr, HalfOfTheMiddleOfARamp) {
  EXPECT_DOUBLE_EQ(relative_iqr(count_to(5)), 2.0 / 3.0);
  EXPECT_EQ(relative_iqr(count_to(3)), 0);
}

TEST(MedianInterval, NeedsSixSamples) {
  EXPECT_TRUE(std::isinf(median_interval(count_to(5)).high));
  const Interval six = median_interval(count_to(6));
  EXPECT_EQ(six.low, 1);
  EXPECT_EQ(six.high, 6);
}

// Ranks of the 95% interval from tables of the sign test.
TEST(MedianInterval, KnownRanks) {
  EXPECT_EQ(median_interval(count_to(9)).low, 2);
  EXPECT_EQ(median_interval(count_to(20)).low, 6);
  EXPECT_EQ(median_interval(count_to(20)).high, 15);
  EXPECT_EQ(median_interval(count_to(100)).low, 40);
  EXPECT_EQ(median_interval(count_to(100)).high, 61);
}

TEST(MedianInterval, CoversTheMedianOfASkewedDistribution) {
  std::mt19937_64 random(1);
  std::exponential_distribution<double> skewed(1.0);
  const double truth = std::log(2.0);
  int covered = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::vector<double> samples(25);
    for (double& sample : samples) sample = skewed(random);
    const Interval interval = median_interval(samples);
    covered += interval.low <= truth && truth <= interval.high;
  }
  EXPECT_GE(covered, 1890);  // 95% less a little luck
  EXPECT_LE(covered, 1990);  // and not by giving up
}

TEST(Settled, QuietSamplesSettleNoisyOnesDoNot) {
  const StoppingRule rule{.min_samples = 7, .max_samples = 50, .half_width = 0.005};
  std::mt19937_64 random(1);
  std::vector<double> quiet, noisy;
  std::normal_distribution<double> normal(0, 1);
  for (int i = 0; i < 20; ++i) {
    quiet.push_back(100 + 0.1 * normal(random));
    noisy.push_back(100 + 10 * normal(random));
  }
  EXPECT_TRUE(settled(rule, quiet));
  EXPECT_FALSE(settled(rule, noisy));
  EXPECT_FALSE(settled(rule, std::span(quiet).first(6)));
  noisy.resize(50, 100.0);
  EXPECT_TRUE(settled(rule, noisy));
}

TEST(Settled, EqualSamplesHaveNoWidth) {
  const std::vector<double> same(7, 5.0);
  EXPECT_EQ(relative_half_width(same), 0);
  EXPECT_TRUE(std::isinf(relative_half_width(std::span(same).first(5))));
}

}  // namespace
}  // namespace attnforge
