// backward_on_host.h - a backward problem in host memory as a kernel of 16 bits sees it, and the
// oracle's gradients of it. Included after tests/kernels/machine.h and the headers of the device.
#pragma once

#include "backward/params.h"
#include "base.cuh"
#include "tests/kernels/flash_gradients.h"
#include "tests/kernels/index_of.h"

namespace attnforge::test {

/// Of dq, dk and dv: root of the mean square of what is wrong, relative to that of what is right.
using GradientErrors = std::array<double, 3>;

/// Query tiles have block_m rows. lse is `lse_above` larger than that of the keys that are there:
/// as if these were few of many, and the probabilities of all as small.
struct BackwardOnHost {
  HostProblem host;
  Problem problem;
  Tensors tensors;
  ReferenceGradients wanted;
  int block_m;
  std::vector<float> lse_log2, delta;  // of the scratch

  BackwardOnHost(const std::string& words, int rows_of_tile, bool fp32_gradients = true,
                 float lse_above = 0)
      : host(host_with_lse(words + (fp32_gradients ? " gradients=fp32" : ""), lse_above)),
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
        delta[to] += element_of(tensors.o, row, c) * element_of(tensors.gradients.dout, row, c);
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
    p.softcap_to_x = problem.softcap == 0 ? 0 : scale() / static_cast<float>(problem.softcap);
    p.q = ref_of(tensors.q), p.k = ref_of(tensors.k), p.v = ref_of(tensors.v);
    params.dout = ref_of(tensors.gradients.dout);
    params.dk = ref_of(tensors.gradients.dk), params.dv = ref_of(tensors.gradients.dv);
  }
  /// Expects what a kernel made. dq_sum(head, row, column) is a sum of dQ, in units of
  /// softmax_scale. dk and dv are NaN again after it.
  template <class DqSum>
  void expect(const char* when, const DqSum& dq_sum) {
    constexpr double kMost = 6e-3;  // P and dS are rounded to 8 bits
    const GradientErrors errors = errors_of(dq_sum);
    for (std::size_t i = 0; i < errors.size(); ++i)
      EXPECT_LT(errors[i], kMost) << kNames[i] << ", " << when;
    EXPECT_EQ(host.trespass(), "") << when;
    host.poison_outputs();
  }
  /// At most `most` times the errors of a kernel that rounds P and dS once, as FlashAttention-2
  /// does. 1.1: sums come in another order.
  template <class DqSum>
  void expect_as_exact_as_flash(const char* when, const DqSum& dq_sum, double most = 1.1) {
    const GradientErrors errors = errors_of(dq_sum);
    flash_gradients(problem, tensors);
    const GradientErrors of_flash = errors_of([&](int head, int row, int c) {
      const Tensor& dq = tensors.gradients.dq;
      return load_element(DType::kFp32, dq.data,
                          head / problem.num_heads_q * dq.stride_batch + row * dq.stride_row +
                              head % problem.num_heads_q * dq.stride_head + c) /
             scale();
    });
    for (std::size_t i = 0; i < errors.size(); ++i)
      EXPECT_LT(errors[i], most * of_flash[i]) << kNames[i] << ", " << when;
    host.poison_outputs();
  }

 private:
  static TensorRef ref_of(const Tensor& tensor) {
    return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
  }
  static HostProblem host_with_lse(const std::string& words, float lse_above) {
    HostProblem made = make_host_problem(parse_problem(words), 7);
    const Tensors tensors = made.tensors();
    for (std::int64_t head = 0; head < made.problem.batch * made.problem.num_heads_q; ++head)
      for (std::int64_t row = 0; row < made.problem.seqlen_q; ++row)
        tensors.lse
            .data[head / made.problem.num_heads_q * tensors.lse.stride_batch +
                  head % made.problem.num_heads_q * tensors.lse.stride_head + row] += lse_above;
    return made;
  }
  float element_of(const Tensor& tensor, const QueryRow& row, int column) const {
    return load_element(problem.dtype_q, tensor.data,
                        row.batch * tensor.stride_batch + row.query * tensor.stride_row +
                            row.head * tensor.stride_head + column);
  }
  float scale() const { return 1.0f / std::sqrt(static_cast<float>(problem.head_dim)); }
  int head_of(const QueryRow& row) const {
    return static_cast<int>(row.batch * problem.num_heads_q + row.head);
  }
  template <class DqSum>
  GradientErrors errors_of(const DqSum& dq_sum) const {
    const DType dtype = gradient_dtype(problem, problem.dtype_k);
    const auto of_keys = [dtype](const Tensor& tensor) {
      return [&tensor, dtype](const QueryRow& row, int c) {
        return load_element(dtype, tensor.data,
                            row.batch * tensor.stride_batch + row.query * tensor.stride_row +
                                row.head * tensor.stride_head + c);
      };
    };
    const auto of_queries = [&](const QueryRow& row, int c) {
      return scale() * dq_sum(head_of(row), static_cast<int>(row.query), c);
    };
    return {error_of(wanted.dq, wanted.rows.queries, of_queries),
            error_of(wanted.dk, wanted.rows.keys, of_keys(tensors.gradients.dk)),
            error_of(wanted.dv, wanted.rows.keys, of_keys(tensors.gradients.dv))};
  }
  template <class Row, class Got>
  static double error_of(const ReferenceGradient& wanted, const std::vector<Row>& rows,
                         const Got& got) {
    double of_difference = 0, of_wanted = 0;
    for (std::size_t i = 0; i < wanted.values.size(); ++i) {
      const std::size_t columns = index_of(wanted.columns);
      const double value = wanted.values[i];
      const double difference = double{got(rows[i / columns], static_cast<int>(i % columns))} -
                                value;
      of_difference += difference * difference;
      of_wanted += value * value;
    }
    return std::sqrt(of_difference / of_wanted);
  }
  static constexpr const char* kNames[] = {"dq", "dk", "dv"};
};

}  // namespace attnforge::test
