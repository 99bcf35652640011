// scales.h - k and v of 8 or 4 bits: the values of their rows, and how numbers become such rows.
#pragma once

#include <cstdint>
#include <span>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Whether kernels may read k and v of fewer bits in q's 16: numbers times scales, rounded once
/// more. None does where few queries read them, or where all batches are to have the same bits.
bool may_be_widened(const Problem& problem);

/// The elements of row `row` of head `head`, exactly: `first` is where it begins in the array, of
/// `dtype`, and in `scales`, where the format has scales, as ScaleTensor says, and `shared` what
/// shares one (problem.kv_scale, or scale_of_v()). The product of a number and its scale has no
/// more bits than a double; a zero point is added in one.
void load_row(const Problem& problem, DType dtype, KvScale shared, const void* array,
              std::int64_t first, const ScaleTensor& scales, std::int64_t batch, std::int64_t row,
              std::int64_t head, int columns, double* to);

/// The scales of a sequence as a problem of its own, whose rows begin at `begin` of `batch`.
ScaleTensor scales_of_sequence(KvScale shared, ScaleTensor scales, std::int64_t sequence,
                               std::int64_t batch, std::int64_t begin);

/// Makes a row of a head numbers of `dtype`, from element `first` of `codes` on: x / scale in fp32,
/// or x where the scale is 0, rounded to the format, and no farther from 0 than its largest number.
/// `scales` is where the row's scales lie: those of rows are written, others read; null without
/// any. One that is written is the largest magnitude / the largest number of the format, in fp32: 0
/// where all are 0, NaN where one is NaN or infinite. With kv_zero the least of a row becomes -8
/// and the largest 7, as append_kv() says.
void quantise_row(const Problem& problem, DType dtype, std::span<const float> row, void* codes,
                  std::int64_t first, float* scales);

}  // namespace attnforge
