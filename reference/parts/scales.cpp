#include "reference/parts/scales.h"

#include <algorithm>
#include <cmath>

#include "reference/half.h"

namespace attnforge {

void load_row(const Problem& problem, DType dtype, const void* array, std::int64_t first,
              const ScaleTensor& scales, std::int64_t batch, std::int64_t row, std::int64_t head,
              int columns, double* to) {
  load_elements(dtype, array, first, columns, to);
  if (!is_low_bit(dtype) || problem.kv_scale == KvScale::kNone) return;
  const bool of_row = problem.kv_scale >= KvScale::kToken;
  const float* const scale = scales.data + batch * scales.stride_batch +
                             (of_row ? row * scales.stride_row : 0) + head * scales.stride_head;
  const int group = scale_group(problem) == 0 ? columns : scale_group(problem);
  for (int d = 0; d < columns; ++d) to[d] *= static_cast<double>(scale[d / group]);
}

ScaleTensor scales_of_sequence(const Problem& problem, ScaleTensor scales, std::int64_t sequence,
                               std::int64_t batch, std::int64_t begin) {
  if (scales.data == nullptr) return scales;
  if (problem.kv_scale >= KvScale::kToken)
    scales.data += batch * scales.stride_batch + begin * scales.stride_row;
  else
    scales.data += sequence * scales.stride_batch;
  scales.stride_batch = 0;
  return scales;
}

float scale_for(DType dtype, float largest) {
  return largest / static_cast<float>(format_of(dtype).largest);
}

float quantised(DType dtype, float x, float scale) {
  return scale == 0.0f ? 0.0f : round_to(dtype, x / scale);
}

void quantise_rows(const Problem& problem, DType dtype, const float* values, std::int64_t rows,
                   std::int64_t heads, int columns, void* codes, float* scales) {
  const bool of_row = problem.kv_scale >= KvScale::kToken;
  const int group = scale_group(problem) == 0 ? columns : scale_group(problem);
  const int each = scales_of_row(problem, columns);
  for (std::int64_t i = 0; i < rows * heads; ++i) {
    for (int g = 0; g * group < columns; ++g) {
      const std::int64_t at = i * columns + g * group;
      const int count = std::min(group, columns - g * group);
      float scale = 1.0f;
      if (of_row) {
        float largest = 0.0f;
        for (int d = 0; d < count; ++d) largest = std::max(largest, std::abs(values[at + d]));
        scale = scales[i * each + g] = scale_for(dtype, largest);
      } else if (problem.kv_scale != KvScale::kNone) {
        scale = scales[problem.kv_scale == KvScale::kHead ? i % heads : 0];
      }
      for (int d = 0; d < count; ++d)
        store_element(dtype, codes, at + d, quantised(dtype, values[at + d], scale));
    }
  }
}

}  // namespace attnforge
