// host_values.cpp - the numbers in a host problem: inputs of several kinds, gradients of outputs,
// and the outputs of the forward that a backward problem takes.
#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/support/host_parts.h"

namespace attnforge::test {
namespace {

/// Writes value(row, column) to every element.
template <class Value>
void fill(HostProblem& host, const HostShape& shape, const PlacedTensor& placed, Value&& value) {
  std::byte* data = host.storages[static_cast<std::size_t>(placed.storage)].data() +
                    placed.offset_bytes;
  float block[kBlockElements];
  for_each_element(shape, placed.strides, [&](std::int64_t at, std::int64_t row, int column) {
    if (is_blocks(shape.dtype)) {
      const int i = column % kBlockElements;
      block[i] = value(row, column);
      if (i == kBlockElements - 1)
        format_of(shape.dtype).store(block, kBlockElements, data, at - i);
      return;
    }
    store_element(shape.dtype, data, at, value(row, column));
  });
}

/// fill() of q, k or v and its scales: where it has some these come first, for numbers of about 1,
/// and say what the numbers become.
template <class Value>
void fill_keys(HostProblem& host, const HostShape& shape, const PlacedTensor& placed,
               const PlacedTensor& placed_scales, KvScale shared, unsigned seed, Value&& value) {
  const Problem& p = host.problem;
  if (!has_scales(p, shape.dtype)) return fill(host, shape, placed, value);
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> factor(0.4f, 1.2f);
  const float unit = 3.5f / static_cast<float>(format_of(shape.dtype).largest);
  fill(host, shape_of_scales(host, shape, shared), placed_scales, [&](std::int64_t, int i) {
    return p.kv_zero && i % 2 == 1 ? 2 * factor(random) - 1 : unit * factor(random);
  });
  std::byte* const data = host.storages[static_cast<std::size_t>(placed.storage)].data() +
                          placed.offset_bytes;
  const auto* const scales = reinterpret_cast<const float*>(
      host.storages[static_cast<std::size_t>(placed_scales.storage)].data() +
      placed_scales.offset_bytes);
  const bool of_rows = shared >= KvScale::kToken, one = shared == KvScale::kTensor;
  const int group = scale_group(p) == 0 ? shape.columns : scale_group(p);
  const Tensor &of = placed_scales.strides, &strides = placed.strides;
  for (const SequenceRows& rows : shape.sequences) {
    for (std::int64_t head = 0; head < shape.heads; ++head) {
      const std::int64_t its_head = of_rows ? head : head * p.num_heads_kv / shape.heads;
      for (std::int64_t i = 0; i < rows.count; ++i) {
        const std::int64_t row = rows.begin + i, batch = of_rows ? rows.batch : rows.sequence;
        const float* const scale = one ? scales
                                       : scales + batch * of.stride_batch +
                                             its_head * of.stride_head +
                                             (of_rows ? row * of.stride_row : 0);
        const std::int64_t at = rows.batch * strides.stride_batch + head * strides.stride_head +
                                row * strides.stride_row;
        for (int column = 0; column < shape.columns; ++column) {
          const float* const of_group = scale + column / group * (p.kv_zero ? 2 : 1);
          const float zero = p.kv_zero ? of_group[1] : 0.0f;
          store_element(shape.dtype, data, at + column,
                        (value(rows.first + i, column) - zero) / *of_group);
        }
      }
    }
  }
}

}  // namespace

void fill_inputs(HostProblem& host, unsigned seed, Inputs inputs) {
  const Problem& p = host.problem;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  constexpr float kFar = 3.0f;  // |score| is about kFar^2 * sqrt(head_dim)
  const float growth = 70.0f / (std::sqrt(static_cast<float>(p.head_dim)) *
                                static_cast<float>(std::max<std::int64_t>(p.seqlen_kv, 1)));
  const auto q = [&](std::int64_t, int column) {
    const float x = normal(random);
    switch (inputs) {
      case Inputs::kStronglyNegative:
      case Inputs::kStronglyPositive:
        return kFar + 0.3f * x;
      case Inputs::kGrowingToFirst:
      case Inputs::kGrowingToLast:
        return 1 + 0.3f * x;
      case Inputs::kLarge:
        return 8 * x;
      case Inputs::kInfiniteKeys:
        return column == 0 ? std::abs(x) + 0.5f : x;
      case Inputs::kNormal:
      case Inputs::kEqualScores:
      case Inputs::kOddSequencesNaN:
        break;
    }
    return x;
  };
  const auto k = [&](std::int64_t row, int column) {
    const float x = normal(random);
    switch (inputs) {
      case Inputs::kStronglyNegative:
        return -kFar + 0.3f * x;
      case Inputs::kStronglyPositive:
        return kFar + 0.3f * x;
      case Inputs::kGrowingToFirst:
        return growth * static_cast<float>(p.seqlen_kv - 1 - row) + 0.3f * x;
      case Inputs::kGrowingToLast:
        return growth * static_cast<float>(row) + 0.3f * x;
      case Inputs::kLarge:
        return 8 * x;
      case Inputs::kInfiniteKeys:
        return column == 0 && row % 10 == 3 ? -std::numeric_limits<float>::infinity() : x;
      case Inputs::kEqualScores:
        return 0.0f;
      case Inputs::kNormal:
      case Inputs::kOddSequencesNaN:
        break;
    }
    return x;
  };
  fill_keys(host, shape_of_q(host), host.q, host.q_scale, p.kv_scale, seed + 3, q);
  fill_keys(host, shape_of_k(host), host.k, host.k_scale, p.kv_scale, seed + 1, k);
  fill_keys(host, shape_of_v(host), host.v, host.v_scale, scale_of_v(p), seed + 2,
            [&](std::int64_t, int) { return normal(random); });
  if (inputs != Inputs::kOddSequencesNaN) return;
  HostShape odd = shape_of_v(host);
  for (SequenceRows& rows : odd.sequences) {
    if (rows.sequence % 2 == 0) rows.count = 0;
  }
  fill(host, odd, host.v,
       [](std::int64_t, int) { return std::numeric_limits<float>::quiet_NaN(); });
}

void fill_gradients(HostProblem& host, unsigned seed) {
  const Problem& p = host.problem;
  if (!is_backward(p)) return;
  std::mt19937 random(seed + 7919);
  std::normal_distribution<float> normal;
  const auto any = [&](std::int64_t, int) { return normal(random); };
  fill(host, shape_of_o(host), host.dout, any);
  fill(host, shape_of_rows(host), host.dlse, any);
  if (p.accumulate) {
    fill(host, shape_of_gradient(shape_of_q(host), p), host.dq, any);
    fill(host, shape_of_gradient(shape_of_k(host), p), host.dk, any);
    fill(host, shape_of_gradient(shape_of_v(host), p), host.dv, any);
    if (p.sinks) fill(host, shape_of_sinks(p), host.dsinks, any);
  }
  host.gradients_before.assign(host.storages.begin() + kStorageDq,
                               host.storages.begin() + kStorageDsinks + 1);
}

void set_forward_outputs(HostProblem& host, const CodeFunctions& code) {
  const Problem& p = host.problem;
  const Tensors tensors = host.tensors();
  const Sequences sequences = sequences_of(p, tensors);
  const Reference forward = reference_attention(p, tensors, all_rows(sequences), code);
  for (std::size_t i = 0; i < forward.rows.size(); ++i) {
    const QueryRow row = place_of(sequences, forward.rows[i]);
    const std::int64_t of_o = row.batch * tensors.o.stride_batch +
                              row.head * tensors.o.stride_head + row.query * tensors.o.stride_row;
    for (int d = 0; d < p.head_dim_v; ++d) {
      const std::size_t at = i * static_cast<std::size_t>(p.head_dim_v) +
                             static_cast<std::size_t>(d);
      store_element(p.dtype_o, tensors.o.data, of_o + d, static_cast<float>(forward.o[at]));
    }
    tensors.lse.data[row.batch * tensors.lse.stride_batch + row.head * tensors.lse.stride_head +
                     row.query] = static_cast<float>(forward.lse[i]);
  }
}

}  // namespace attnforge::test
