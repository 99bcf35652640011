// flash_gradients.h - backward on the CPU as a correct kernel in low precision does it: scores, p
// and ds in fp32, p and ds rounded before their products, sums in fp32, one rounding of gradients.
// What its tolerances must let pass.
#pragma once

#include <cmath>
#include <limits>
#include <vector>

#include "reference/half.h"
#include "reference/sequences.h"
#include "reference/visible.h"

namespace attnforge::test {

/// Writes dq, dk, dv and dsinks of a problem without code, in host memory.
inline void flash_gradients(const Problem& problem, const Tensors& tensors) {
  for (std::int64_t head = 0; problem.sinks && head < problem.num_heads_q; ++head)
    if (!problem.accumulate) tensors.gradients.dsinks[head] = 0;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    const Sequence one = sequence_of(problem, tensors, batch);
    const Problem& p = one.problem;
    const Tensors& t = one.tensors;
    const Gradients& g = t.gradients;
    const auto row_of = [](DType dtype, const Tensor& tensor, std::int64_t head, std::int64_t row,
                           int columns) {
      std::vector<float> x(static_cast<std::size_t>(columns));
      for (std::size_t d = 0; d < x.size(); ++d)
        x[d] = load_element(
            dtype, tensor.data,
            head * tensor.stride_head + row * tensor.stride_row + static_cast<std::int64_t>(d));
      return x;
    };
    const auto sum_of_products = [](const std::vector<float>& x, const std::vector<float>& y) {
      float sum = 0;
      for (std::size_t d = 0; d < x.size(); ++d) sum += x[d] * y[d];
      return sum;
    };
    const auto add = [](float factor, const std::vector<float>& x, std::vector<float>& sum) {
      for (std::size_t d = 0; d < x.size(); ++d) sum[d] += factor * x[d];
    };
    const auto store = [&](DType input, const Tensor& tensor, std::int64_t head, std::int64_t row,
                           const std::vector<float>& sum, float scale) {
      const DType dtype = gradient_dtype(p, input);
      const std::int64_t at = head * tensor.stride_head + row * tensor.stride_row;
      for (std::size_t d = 0; d < sum.size(); ++d) {
        const std::int64_t i = at + static_cast<std::int64_t>(d);
        const float before = p.accumulate ? load_element(dtype, tensor.data, i) : 0.0f;
        store_element(dtype, tensor.data, i, before + sum[d] * scale);
      }
    };
    const float scale = effective_softmax_scale(p);
    const std::int64_t group = p.num_heads_q / p.num_heads_kv;
    for (std::int64_t kv_head = 0; kv_head < p.num_heads_kv; ++kv_head) {
      const auto keys = static_cast<std::size_t>(p.seqlen_kv);
      std::vector<std::vector<float>> k, v, dk(keys), dv(keys);
      for (std::size_t j = 0; j < keys; ++j) {
        const auto key = static_cast<std::int64_t>(j);
        k.push_back(row_of(p.dtype_k, t.k, kv_head, key, p.head_dim));
        v.push_back(row_of(p.dtype_v, t.v, kv_head, key, p.head_dim_v));
        dk[j].resize(static_cast<std::size_t>(p.head_dim), 0.0f);
        dv[j].resize(static_cast<std::size_t>(p.head_dim_v), 0.0f);
      }
      for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
          const std::vector<float> q = row_of(p.dtype_q, t.q, head, query, p.head_dim),
                                   o = row_of(p.dtype_o, t.o, head, query, p.head_dim_v),
                                   dout = row_of(p.dtype_o, g.dout, head, query, p.head_dim_v);
          std::vector<float> dq(q.size(), 0.0f);
          const float lse = t.lse.data[head * t.lse.stride_head + query];
          float delta = sum_of_products(dout, o);
          if (p.dlse) delta -= g.dlse.data[head * g.dlse.stride_head + query];
          if (p.sinks && lse != -std::numeric_limits<float>::infinity())
            g.dsinks[head] -= std::exp(t.sinks[head] - lse) * delta;
          const KeyRange range = visible_keys(p, query);
          const MaskRow mask = one.mask.row(0, head, query);
          for (std::size_t j = 0; j < keys; ++j) {
            const auto key = static_cast<std::int64_t>(j);
            if (!range.contains(key) || !mask.contains(key)) continue;
            if (lse == -std::numeric_limits<float>::infinity()) continue;
            float s = scale * sum_of_products(q, k[j]), slope = 1;
            if (p.softcap != 0.0f) {
              const float x = std::tanh(s / p.softcap);
              slope = 1 - x * x;
              s = p.softcap * x;
            }
            const float weight = std::exp(s - lse);
            const float ds = weight * (sum_of_products(dout, v[j]) - delta) * slope;
            add(round_to(p.dtype_o, weight), dout, dv[j]);
            add(round_to(p.dtype_q, ds), q, dk[j]);
            add(round_to(p.dtype_k, ds), k[j], dq);
          }
          store(p.dtype_q, g.dq, head, query, dq, scale);
        }
      }
      for (std::size_t j = 0; j < keys; ++j) {
        store(p.dtype_k, g.dk, kv_head, static_cast<std::int64_t>(j), dk[j], scale);
        store(p.dtype_v, g.dv, kv_head, static_cast<std::int64_t>(j), dv[j], 1);
      }
    }
  }
}

}  // namespace attnforge::test
