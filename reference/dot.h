// dot.h - sums of products of rows, written so that a compiler makes vector code of them.
#pragma once

namespace attnforge {

/// Sum of x[i] y[i]; `count` is a multiple of 8, as every head dim is.
template <class Real>
Real dot(const Real* x, const Real* y, int count) {
  constexpr int kLanes = 8;
  Real sums[kLanes] = {};
  for (int i = 0; i < count; i += kLanes)
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += x[i + lane] * y[i + lane];
  Real sum = 0;
  for (const Real of_lane : sums) sum += of_lane;
  return sum;
}

/// sum[i] += factor * x[i].
template <class Real>
void add_multiple(Real factor, const Real* x, int count, Real* sum) {
  for (int i = 0; i < count; ++i) sum[i] += factor * x[i];
}

}  // namespace attnforge
