// backward_world.h - a small backward problem in host memory as kernels see it, and its gradients
// by the definition. Included after tests/support/host_grid.h.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "backward/params.h"
#include "oracle/bwd_naive/config.h"
#include "pieces/fixed_lengths.cuh"

namespace attnforge::test {

inline constexpr int kBatch = 2, kHeads = 2, kHeadsKv = 1, kQueries = 13, kKeys = 10, kDim = 16,
                     kDimV = 24;
inline constexpr int kWindowLeft = 6, kWindowRight = 1;
inline constexpr float kScale = 0.3f, kCap = 2.0f, kInf = std::numeric_limits<float>::infinity();

/// Of an element of a vector.
constexpr std::size_t index(i64 i) { return static_cast<std::size_t>(i); }

constexpr Shape shape(bool softcap, bool accumulate, bool sinks = false) {
  Shape shape{};
  shape.dtype = shape.dtype_k = shape.dtype_v = shape.dtype_o = kFp32;
  shape.head_dim = kDim, shape.head_dim_v = kDimV;
  shape.alignment = 4;
  shape.softcap = softcap, shape.accumulate = accumulate, shape.sinks = sinks;
  return shape;
}

struct HostPieces {
  using Lengths = FixedLengths;
};

/// [batch, heads, rows, columns] of fp32, and all that a run has.
struct BackwardWorld {
  std::vector<float> q, k, v, o, lse, dout, dlse, dq, dk, dv;
  BwdNaiveParams params{};

  explicit BackwardWorld(bool softcap) {
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto filled = [&](std::vector<float>& to, TensorRef* ref, int heads, int rows,
                            int columns) {
      to.resize(index(kBatch * heads * rows * columns));
      for (float& x : to) x = normal(random);
      if (ref != nullptr)
        *ref = {to.data(), i64{heads} * rows * columns, columns, i64{rows} * columns};
    };
    FwdParams& p = params.fwd;
    filled(q, &p.q, kHeads, kQueries, kDim);
    filled(k, &p.k, kHeadsKv, kKeys, kDim);
    filled(v, &p.v, kHeadsKv, kKeys, kDimV);
    filled(o, &p.o, kHeads, kQueries, kDimV);
    filled(dout, &params.dout, kHeads, kQueries, kDimV);
    filled(dq, &params.dq, kHeads, kQueries, kDim);
    filled(dk, &params.dk, kHeadsKv, kKeys, kDim);
    filled(dv, &params.dv, kHeadsKv, kKeys, kDimV);
    filled(lse, nullptr, kHeads, kQueries, 1);
    filled(dlse, nullptr, kHeads, kQueries, 1);
    for (std::size_t i = 5; i < lse.size(); i += 17) lse[i] = -kInf;  // whatever the window says
    p.lse = lse.data(), params.dlse = dlse.data();
    p.lse_stride_batch = params.dlse_stride_batch = kHeads * kQueries;
    p.lse_stride_head = params.dlse_stride_head = kQueries;
    p.batch = kBatch, p.num_heads_q = kHeads, p.num_heads_kv = kHeadsKv;
    p.seqlen_q = kQueries, p.seqlen_kv = kKeys;
    p.window_left = kWindowLeft, p.window_right = kWindowRight;
    p.softmax_scale = kScale;
    p.softcap_to_x = softcap ? kScale / kCap : 0;
    params.num_queries = kQueries, params.num_keys = kKeys;
    params.query_blocks = kBatch * kHeads * ceil_div(kQueries, BwdNaiveConfig::kRows);
    params.row_blocks = params.query_blocks +
                        kBatch * kHeadsKv * ceil_div(kKeys, BwdNaiveConfig::kRows);
  }
  int blocks() const { return params.row_blocks; }
};

inline constexpr float kSinks[kHeads] = {1.5f, -0.5f};

/// By the definition, in fp64.
inline std::vector<double> sink_gradients(const BackwardWorld& w) {
  std::vector<double> dsinks(kHeads);
  for (int row = 0; row < kBatch * kHeads * kQueries; ++row) {
    if (w.lse[index(row)] == -kInf) continue;
    double delta = -w.dlse[index(row)];
    for (int d = 0; d < kDimV; ++d)
      delta += double{w.o[index(row * kDimV + d)]} * w.dout[index(row * kDimV + d)];
    const std::size_t head = index(row / kQueries % kHeads);
    dsinks[head] -= std::exp(kSinks[head] - w.lse[index(row)]) * delta;
  }
  return dsinks;
}

/// What a score becomes, and its derivative.
struct ScoreOfPair {
  double value, slope;
};
/// Of a pair: whether the query sees the key beside windows, and what its score becomes.
struct NoCode {
  static bool sees(int /*batch*/, int /*head*/, int /*query*/, int /*key*/) { return true; }
  static ScoreOfPair score(double s, int /*head*/, int /*query*/, int /*key*/) { return {s, 1}; }
};

/// By the definition, in fp64. Adds to what it is given.
template <class Code = NoCode>
inline void add_gradients(const BackwardWorld& w, bool softcap, std::vector<double>& dq,
                          std::vector<double>& dk, std::vector<double>& dv, const Code& code = {}) {
  const auto dot = [](const float* a, const float* b, int count) {
    double sum = 0;
    for (int i = 0; i < count; ++i) sum += double{a[i]} * double{b[i]};
    return sum;
  };
  for (int row = 0; row < kBatch * kHeads * kQueries; ++row) {
    const int query = row % kQueries, head = row / kQueries % kHeads;
    const int batch = row / kQueries / kHeads;
    const double delta = dot(&w.o[index(row * kDimV)], &w.dout[index(row * kDimV)], kDimV) -
                         w.dlse[index(row)];
    for (int key = 0; key < kKeys; ++key) {
      const int position = query + kKeys - kQueries;
      if (key < position - kWindowLeft || key > position + kWindowRight) continue;
      if (w.lse[index(row)] == -kInf || !code.sees(batch, head, query, key)) continue;
      const int key_row = (batch * kHeadsKv + head / (kHeads / kHeadsKv)) * kKeys + key;
      double s = kScale * dot(&w.q[index(row * kDim)], &w.k[index(key_row * kDim)], kDim);
      double slope = 1;
      if (softcap) {
        const double x = std::tanh(s / kCap);
        s = kCap * x, slope = 1 - x * x;
      }
      const ScoreOfPair scored = code.score(s, head, query, key);
      s = scored.value, slope *= scored.slope;
      const double p = std::exp(s - w.lse[index(row)]);
      const double dp = dot(&w.dout[index(row * kDimV)], &w.v[index(key_row * kDimV)], kDimV);
      const double ds = p * (dp - delta) * slope;
      for (int d = 0; d < kDim; ++d) {
        dq[index(row * kDim + d)] += kScale * ds * w.k[index(key_row * kDim + d)];
        dk[index(key_row * kDim + d)] += kScale * ds * w.q[index(row * kDim + d)];
      }
      for (int d = 0; d < kDimV; ++d)
        dv[index(key_row * kDimV + d)] += p * w.dout[index(row * kDimV + d)];
    }
  }
}

inline void expect_near(const std::vector<float>& actual, const std::vector<double>& expected,
                        const char* name) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 0;
  for (const double x : expected) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], 1e-5 * largest) << name << " " << i;
}

}  // namespace attnforge::test
