// stopping.h - when the median of some samples is known well enough. Free of any assumption on how
// times are distributed.
#pragma once

#include <cstddef>
#include <span>

namespace attnforge {

struct Interval {
  double low = 0;
  double high = 0;
};

/// Middle sample, or the mean of the two in the middle. NaN when empty.
double median(std::span<const double> samples);

/// Interquartile range / median; 0 for fewer than 4 samples.
double relative_iqr(std::span<const double> samples);

/// Order statistics that enclose the true median with at least 95% probability, whatever the
/// distribution: the number of samples below the median is binomial(n, 1/2). With fewer than 6
/// samples no pair of order statistics is that sure, and the interval is (-infinity, infinity).
Interval median_interval(std::span<const double> samples);

/// Half the width of median_interval / median; infinity with fewer than 6 samples.
double relative_half_width(std::span<const double> samples);

struct StoppingRule {
  std::size_t min_samples = 7;
  std::size_t max_samples = 101;
  double half_width = 0.005;  // of the median's interval, relative
};

/// True when the median is known to rule.half_width, or max_samples are there.
bool settled(const StoppingRule& rule, std::span<const double> samples);

}  // namespace attnforge
