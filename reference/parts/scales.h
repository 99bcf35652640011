// scales.h - k and v of 8 or 4 bits: the values of their rows, and how numbers become such rows.
#pragma once

#include <cstdint>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// The elements of row `row` of head `head`, exactly: `first` is where it begins in the array, of
/// `dtype`, and in `scales`, where the format has scales, as ScaleTensor says. The product of a
/// number and its scale has no more bits than a double.
void load_row(const Problem& problem, DType dtype, const void* array, std::int64_t first,
              const ScaleTensor& scales, std::int64_t batch, std::int64_t row, std::int64_t head,
              int columns, double* to);

/// The scales of a sequence as a problem of its own, whose rows begin at `begin` of `batch`.
ScaleTensor scales_of_sequence(const Problem& problem, ScaleTensor scales, std::int64_t sequence,
                               std::int64_t batch, std::int64_t begin);

/// What a scale is for numbers up to `largest`: that / the largest of the format, in fp32. 0 where
/// all are 0.
float scale_for(DType dtype, float largest);
/// x / scale rounded to the format, both in fp32; 0 where scale is 0.
float quantised(DType dtype, float x, float scale);

/// Makes `rows` rows of heads that lie one after another, [rows, heads, columns] of fp32, into
/// `codes` and their scales, of problem.kv_scale: scales that rows share must be in `scales`
/// already.
void quantise_rows(const Problem& problem, DType dtype, const float* values, std::int64_t rows,
                   std::int64_t heads, int columns, void* codes, float* scales);

}  // namespace attnforge
