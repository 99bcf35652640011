#include "reference/parts/scales.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "reference/half.h"

namespace attnforge {
namespace {

constexpr float kLeastNormal = std::numeric_limits<float>::min();

float scale_for(DType dtype, std::span<const float> numbers) {
  float largest = 0.0f;
  for (const float x : numbers) {
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(x));
  }
  const float scale = largest / static_cast<float>(format_of(dtype).largest);
  return scale < kLeastNormal ? 0.0f : scale;
}

/// Of numbers with a zero point.
struct ScaleAndZero {
  float scale, zero;
};
ScaleAndZero scale_and_zero_for(std::span<const float> numbers) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  if (!std::ranges::all_of(numbers, [](float x) { return std::isfinite(x); })) return {kNaN, kNaN};
  const auto [least, most] = std::ranges::minmax(numbers);
  const float scale = (most * 0.5f - least * 0.5f) * (2.0f / 15);
  const float used = scale < kLeastNormal ? 0.0f : scale;
  return {used, 2 * (4 * used + least * 0.5f)};  // in halves: 8 times a scale may be too large
}

float inverse_of(float scale) { return std::abs(scale) < kLeastNormal ? 1.0f : 1.0f / scale; }

}  // namespace

bool may_be_widened(const Problem& problem) {
  constexpr std::int64_t kFewQueries = 16, kFewRows = 128;  // as templates/parts/widening has them
  if (!is_attention(problem) || !has_low_bit_kv(problem)) return false;
  if (is_low_bit(problem.dtype_q) || problem.batch_invariant) return false;
  if (problem.seqlen_q > kFewQueries) return true;
  const auto queries = std::bit_ceil(
      static_cast<std::uint64_t>(problem.seqlen_q));  // of its bucket
  return static_cast<std::int64_t>(queries) * problem.num_heads_q / problem.num_heads_kv > kFewRows;
}

void load_row(const Problem& problem, DType dtype, KvScale shared, const void* array,
              std::int64_t first, const ScaleTensor& scales, std::int64_t batch, std::int64_t row,
              std::int64_t head, int columns, double* to) {
  load_elements(dtype, array, first, columns, to);
  if (!is_low_bit(dtype) || shared == KvScale::kNone) return;
  const bool of_row = shared >= KvScale::kToken;
  const float* const scale = scales.data + batch * scales.stride_batch +
                             (of_row ? row * scales.stride_row : 0) + head * scales.stride_head;
  const int group = scale_group(problem) == 0 ? columns : scale_group(problem);
  for (int d = 0; d < columns; ++d) {
    if (problem.kv_zero)
      to[d] = to[d] * scale[d / group * 2] + scale[d / group * 2 + 1];
    else
      to[d] *= static_cast<double>(scale[d / group]);
  }
}

ScaleTensor scales_of_sequence(KvScale shared, ScaleTensor scales, std::int64_t sequence,
                               std::int64_t batch, std::int64_t begin) {
  if (scales.data == nullptr) return scales;
  if (shared >= KvScale::kToken)
    scales.data += batch * scales.stride_batch + begin * scales.stride_row;
  else
    scales.data += sequence * scales.stride_batch;
  scales.stride_batch = 0;
  return scales;
}

namespace {

/// Numbers of a group from the least, -8, to the largest, 7.
void quantise_range(DType dtype, std::span<const float> values, void* codes, std::int64_t first,
                    float* scale_and_zero) {
  const auto [scale, zero] = scale_and_zero_for(values);
  scale_and_zero[0] = scale, scale_and_zero[1] = zero;
  const float inverse = inverse_of(scale);
  for (const float x : values)
    store_element(dtype, codes, first++, std::clamp((x - zero) * inverse, -8.0f, 7.0f));
}

}  // namespace

void quantise_row(const Problem& problem, DType dtype, std::span<const float> row, void* codes,
                  std::int64_t first, float* scales) {
  const std::size_t group = scale_group(problem) == 0
                                ? row.size()
                                : static_cast<std::size_t>(scale_group(problem));
  for (std::size_t begin = 0; begin < row.size(); begin += group) {
    const std::span values = row.subspan(begin, std::min(group, row.size() - begin));
    if (problem.kv_zero) {
      quantise_range(dtype, values, codes, first + static_cast<std::int64_t>(begin),
                     scales + begin / group * 2);
      continue;
    }
    float scale = 1.0f;
    if (problem.kv_scale >= KvScale::kToken)
      scale = scales[begin / group] = scale_for(dtype, values);
    else if (problem.kv_scale != KvScale::kNone)
      scale = scales[0];
    const auto most = static_cast<float>(format_of(dtype).largest);
    const float inverse = inverse_of(scale);
    for (const float x : values)
      store_element(dtype, codes, first++, round_to(dtype, std::clamp(x * inverse, -most, most)));
  }
}

}  // namespace attnforge
