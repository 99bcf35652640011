#include "tuner/search/stopping.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace attnforge {
namespace {

std::vector<double> sorted(std::span<const double> samples) {
  std::vector<double> result(samples.begin(), samples.end());
  std::sort(result.begin(), result.end());
  return result;
}

/// Value at `fraction` of a sorted list, interpolated.
double quantile(const std::vector<double>& values, double fraction) {
  const double place = fraction * static_cast<double>(values.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, values.size() - 1);
  return values[below] + (place - static_cast<double>(below)) * (values[above] - values[below]);
}

/// Largest k with P(binomial(n, 1/2) < k) <= 2.5%; then the k-th smallest and k-th largest of n
/// samples enclose the median with at least 95%. 0 when there is none.
std::size_t enclosing_rank(std::size_t n) {
  constexpr double kTail = 0.025;
  const double log_half_n = static_cast<double>(n) * std::log(0.5);
  double log_choose = 0;  // log of n over k
  double below = 0;       // P(X <= k - 1)
  std::size_t k = 0;
  while (k < n) {
    below += std::exp(log_choose + log_half_n);
    if (below > kTail) break;
    log_choose += std::log(static_cast<double>(n - k)) - std::log(static_cast<double>(k + 1));
    ++k;
  }
  return k;
}

}  // namespace

double median(std::span<const double> samples) {
  if (samples.empty()) return std::numeric_limits<double>::quiet_NaN();
  return quantile(sorted(samples), 0.5);
}

double relative_iqr(std::span<const double> samples) {
  if (samples.size() < 4) return 0;
  const std::vector<double> values = sorted(samples);
  const double middle = quantile(values, 0.5);
  return middle > 0 ? (quantile(values, 0.75) - quantile(values, 0.25)) / middle : 0;
}

Interval median_interval(std::span<const double> samples) {
  const std::size_t rank = enclosing_rank(samples.size());
  if (rank == 0) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return {-kInfinity, kInfinity};
  }
  const std::vector<double> values = sorted(samples);
  return {values[rank - 1], values[values.size() - rank]};
}

double relative_half_width(std::span<const double> samples) {
  const Interval interval = median_interval(samples);
  const double middle = median(samples);
  if (!(middle > 0) || std::isinf(interval.high)) return std::numeric_limits<double>::infinity();
  return 0.5 * (interval.high - interval.low) / middle;
}

bool settled(const StoppingRule& rule, std::span<const double> samples) {
  if (samples.size() >= rule.max_samples) return true;
  return samples.size() >= rule.min_samples && relative_half_width(samples) <= rule.half_width;
}

}  // namespace attnforge
