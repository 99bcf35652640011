// backward_on_host.h - a backward problem in host memory as a kernel of bf16 sees it, and the
// oracle's gradients of it. Included after tests/kernels/machine.h and the headers of the device.
#pragma once

#include "base.cuh"
#include "params_bwd.h"
#include "tests/support/index_of.h"

namespace attnforge::test {

/// Query tiles have block_m rows.
struct BackwardOnHost {
  HostProblem host;
  Problem problem;
  Tensors tensors;
  ReferenceGradients wanted;
  int block_m;
  std::vector<float> lse_log2, delta;  // of the scratch

  BackwardOnHost(const std::string& words, int rows_of_tile, bool fp32_gradients = true)
      : host(
            make_host_problem(parse_problem(words + (fp32_gradients ? " gradients=fp32" : "")), 7)),
        problem(host.problem),
        tensors(host.tensors()),
        wanted(reference_gradients(problem, tensors, 1)),
        block_m(rows_of_tile),
        lse_log2(of_rows(1), std::numeric_limits<float>::infinity()),
        delta(of_rows(1)) {
    for (const QueryRow& row : wanted.rows.queries) {
      const auto to = index_of(head_of(row) * rows() + row.query);
      const float lse = tensors.lse.data[row.batch * tensors.lse.stride_batch +
                                         row.head * tensors.lse.stride_head + row.query];
      if (!std::isinf(lse)) lse_log2[to] = lse * 1.44269504f;
      for (int c = 0; c < problem.head_dim_v; ++c)
        delta[to] += bf16_of(tensors.o, row, c) * bf16_of(tensors.gradients.dout, row, c);
    }
  }

  int heads() const { return static_cast<int>(problem.batch * problem.num_heads_q); }
  int kv_heads() const { return static_cast<int>(problem.batch * problem.num_heads_kv); }
  int rows() const { return round_up(static_cast<int>(problem.seqlen_q), block_m); }
  std::size_t of_rows(int columns) const { return index_of(i64{heads()} * rows() * columns); }
  /// Sizes, windows, scale and tensors.
  void fill(BwdParams& params) const {
    FwdParams& p = params.fwd;
    p.batch = static_cast<int>(problem.batch);
    p.num_heads_q = static_cast<int>(problem.num_heads_q);
    p.num_heads_kv = static_cast<int>(problem.num_heads_kv);
    p.seqlen_q = static_cast<int>(problem.seqlen_q);
    p.seqlen_kv = static_cast<int>(problem.seqlen_kv);
    const KeyBounds bounds = key_bounds(problem);
    p.window_left = static_cast<int>(bounds.left.value_or(kOpenWindow));
    p.window_right = static_cast<int>(bounds.right.value_or(kOpenWindow));
    p.softmax_scale = scale();
    p.q = ref_of(tensors.q), p.k = ref_of(tensors.k), p.v = ref_of(tensors.v);
    params.dout = ref_of(tensors.gradients.dout);
    params.dk = ref_of(tensors.gradients.dk), params.dv = ref_of(tensors.gradients.dv);
  }
  /// Expects what a kernel made. dq_sum(head, row, column) is a sum of dQ, in units of
  /// softmax_scale. dk and dv are NaN again after it.
  template <class DqSum>
  void expect(const char* when, const DqSum& dq_sum) {
    expect_near(when, "dq", wanted.dq, wanted.rows.queries, [&](const QueryRow& row, int c) {
      return scale() * dq_sum(head_of(row), static_cast<int>(row.query), c);
    });
    const DType dtype = gradient_dtype(problem, problem.dtype_k);
    const auto of_keys = [dtype](const Tensor& tensor) {
      return [&tensor, dtype](const KeyRow& row, int c) {
        return load_element(dtype, tensor.data,
                            row.batch * tensor.stride_batch + row.key * tensor.stride_row +
                                row.head * tensor.stride_head + c);
      };
    };
    expect_near(when, "dk", wanted.dk, wanted.rows.keys, of_keys(tensors.gradients.dk));
    expect_near(when, "dv", wanted.dv, wanted.rows.keys, of_keys(tensors.gradients.dv));
    EXPECT_EQ(host.trespass(), "") << when;
    host.poison_outputs();
  }

 private:
  static TensorRef ref_of(const Tensor& tensor) {
    return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
  }
  static float bf16_of(const Tensor& tensor, const QueryRow& row, int column) {
    return load_element(DType::kBf16, tensor.data,
                        row.batch * tensor.stride_batch + row.query * tensor.stride_row +
                            row.head * tensor.stride_head + column);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(problem.head_dim)); }
  int head_of(const QueryRow& row) const {
    return static_cast<int>(row.batch * problem.num_heads_q + row.head);
  }
  template <class Row, class Got>
  static void expect_near(const char* when, const char* what, const ReferenceGradient& wanted,
                          const std::vector<Row>& rows, const Got& got) {
    double of_difference = 0, of_wanted = 0;
    for (std::size_t i = 0; i < wanted.values.size(); ++i) {
      const std::size_t columns = index_of(wanted.columns);
      const double value = wanted.values[i];
      const double difference = double{got(rows[i / columns], static_cast<int>(i % columns))} -
                                value;
      of_difference += difference * difference;
      of_wanted += value * value;
    }
    constexpr double kMost = 6e-3;  // P and dS are rounded to 8 bits
    EXPECT_LT(std::sqrt(of_difference / of_wanted), kMost) << what << ", " << when;
  }
};

}  // namespace attnforge::test
