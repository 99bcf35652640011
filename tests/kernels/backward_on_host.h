// backward_on_host.h - a backward problem of bf16 in host memory, and its gradients by their
// definition in fp64. Included after tests/kernels/machine.h and the headers of the device.
#pragma once

#include "base.cuh"
#include "params_bwd.h"
#include "ptx/convert.cuh"

namespace attnforge::test {

inline constexpr float kLog2e = 1.44269504f;

/// Of an element of a vector.
constexpr std::size_t index_of(int i) { return static_cast<std::size_t>(i); }

/// [batch, rows, heads, columns] of bf16.
struct Tensor16 {
  int rows, heads, columns;
  std::vector<u16> bits;

  Tensor16(int batch, int rows_of, int heads_of, int columns_of, std::mt19937& random)
      : rows(rows_of),
        heads(heads_of),
        columns(columns_of),
        bits(static_cast<std::size_t>(batch) * static_cast<std::size_t>(rows_of * heads_of) *
             static_cast<std::size_t>(columns_of)) {
    std::normal_distribution<float> normal;
    for (u16& x : bits) x = static_cast<u16>(bf16_bits(normal(random)));
  }
  std::size_t at(int batch, int row, int head, int column) const {
    return static_cast<std::size_t>(((batch * rows + row) * heads + head) * columns + column);
  }
  double value(int batch, int row, int head, int column) const {
    return double{__uint_as_float(u32{bits[at(batch, row, head, column)]} << 16)};
  }
  /// As kernels see it, `data` in its place: another array of the same sizes.
  TensorRef ref(void* data) const {
    return {data, i64{rows} * heads * columns, i64{heads} * columns, columns};
  }
  TensorRef ref() { return ref(bits.data()); }
};

struct BackwardSizes {
  int batch, heads_q, heads_kv, queries, keys;
  int dim, dim_v;
  bool causal;
  int block_m;  // rows of the scratch are padded to whole ones
  int window_left = kOpenWindow;
};

/// `dq` is in units of softmax_scale, [batch, heads, padded rows, columns]; dk and dv are as k and
/// v.
struct BackwardOnHost {
  BackwardSizes sizes;
  std::mt19937 random{7};
  Tensor16 q, k, v, dout;
  std::vector<float> lse_log2, delta;
  std::vector<double> dq, dk, dv;

  explicit BackwardOnHost(const BackwardSizes& of)
      : sizes(of),
        q(of.batch, of.queries, of.heads_q, of.dim, random),
        k(of.batch, of.keys, of.heads_kv, of.dim, random),
        v(of.batch, of.keys, of.heads_kv, of.dim_v, random),
        dout(of.batch, of.queries, of.heads_q, of.dim_v, random),
        lse_log2(of_rows(1), std::numeric_limits<float>::infinity()),
        delta(of_rows(1)),
        dq(of_rows(of.dim)),
        dk(k.bits.size()),
        dv(v.bits.size()) {
    for (int b = 0; b < of.batch; ++b)
      for (int h = 0; h < of.heads_q; ++h)
        for (int i = 0; i < of.queries; ++i) add_row(b, h, i);
  }

  int rows() const { return round_up(sizes.queries, sizes.block_m); }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(sizes.dim)); }
  std::size_t of_rows(int columns) const {
    return static_cast<std::size_t>(sizes.batch * sizes.heads_q * rows() * columns);
  }
  /// Sizes, windows and scale.
  void fill(FwdParams& p) const {
    p.batch = sizes.batch, p.num_heads_q = sizes.heads_q, p.num_heads_kv = sizes.heads_kv;
    p.seqlen_q = sizes.queries, p.seqlen_kv = sizes.keys;
    p.window_left = sizes.window_left, p.window_right = sizes.causal ? 0 : kOpenWindow;
    p.softmax_scale = scale();
  }
  /// Expects what a kernel made. dq_sum(head, row, column) is a sum of dQ.
  template <class DqSum>
  void expect(const std::string& when, const DqSum& dq_sum, const std::vector<float>& dk_got,
              const std::vector<float>& dv_got) const {
    std::vector<double> wanted;
    std::vector<float> got;
    for (int head = 0; head < sizes.batch * sizes.heads_q; ++head)
      for (int row = 0; row < sizes.queries; ++row)
        for (int c = 0; c < sizes.dim; ++c) {
          wanted.push_back(dq[static_cast<std::size_t>((head * rows() + row) * sizes.dim + c)]);
          got.push_back(dq_sum(head, row, c));
        }
    constexpr double kMost = 6e-3;  // P and dS are rounded to 8 bits
    EXPECT_LT(distance(wanted, got), kMost) << "dq, " << when;
    EXPECT_LT(distance(dk, dk_got), kMost) << "dk, " << when;
    EXPECT_LT(distance(dv, dv_got), kMost) << "dv, " << when;
  }

 private:
  static double distance(const std::vector<double>& wanted, const std::vector<float>& got) {
    double of_difference = 0, of_wanted = 0;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      of_difference += (got[i] - wanted[i]) * (got[i] - wanted[i]);
      of_wanted += wanted[i] * wanted[i];
    }
    return std::isnan(of_difference) ? std::numeric_limits<double>::infinity()
                                     : std::sqrt(of_difference / of_wanted);
  }
  static double dot(int batch, const Tensor16& a, int row, int a_head, const Tensor16& b, int key,
                    int b_head) {
    double sum = 0;
    for (int c = 0; c < a.columns; ++c)
      sum += a.value(batch, row, a_head, c) * b.value(batch, key, b_head, c);
    return sum;
  }
  void add_row(int b, int h, int i) {
    const int keys = sizes.keys, kv = h / (sizes.heads_q / sizes.heads_kv);
    const int position = i + keys - sizes.queries;
    const int first = std::max(0, position - sizes.window_left);
    const int end = sizes.causal ? std::min(position + 1, keys) : keys;
    if (first >= end) return;
    const auto row = static_cast<std::size_t>((b * sizes.heads_q + h) * rows() + i);
    std::vector<double> p(static_cast<std::size_t>(end - first)), dp(p.size());
    double sum = 0, of_row = 0;
    for (std::size_t j = 0; j < p.size(); ++j) {
      p[j] = std::exp(double{scale()} * dot(b, q, i, h, k, first + static_cast<int>(j), kv));
      dp[j] = dot(b, dout, i, h, v, first + static_cast<int>(j), kv);
      sum += p[j];
    }
    for (double& x : p) x /= sum;
    for (std::size_t j = 0; j < p.size(); ++j) of_row += p[j] * dp[j];
    lse_log2[row] = static_cast<float>(std::log(sum)) * kLog2e;
    delta[row] = static_cast<float>(of_row);
    for (std::size_t j = 0; j < p.size(); ++j) {
      const double ds = p[j] * (dp[j] - of_row);
      const int key = first + static_cast<int>(j);
      for (int c = 0; c < sizes.dim; ++c) {
        dq[row * static_cast<std::size_t>(sizes.dim) + static_cast<std::size_t>(c)] += ds *
                                                                                       k.value(
                                                                                           b, key,
                                                                                           kv, c);
        dk[k.at(b, key, kv, c)] += double{scale()} * ds * q.value(b, i, h, c);
      }
      for (int c = 0; c < sizes.dim_v; ++c)
        dv[v.at(b, key, kv, c)] += p[j] * dout.value(b, i, h, c);
    }
  }
};

}  // namespace attnforge::test
