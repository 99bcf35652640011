// attention.h - what a plain attention in low precision would give: the yardstick of the tolerance
// of fp16 and bf16.
#pragma once

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"

namespace attnforge {

/// Largest error against `expected` of softmax(scale * q k^T) v as three operations on tensors of
/// the dtypes: q and k rotated and rounded to their dtypes, scores accumulated in fp32 and rounded
/// to dtype_q, scaled and capped with roundings in between, probabilities rounded to dtype_v (where
/// that has fewer bits, they and what k and v say to dtype_q), outputs accumulated in fp32 and
/// rounded to dtype_o; with tf32, inputs of both products rounded to it. Rows are those of
/// `expected`; elements that are not finite there, or not here (an fp16
/// score that overflows), are left out. `threads` 0: one a core.
double plain_low_precision_error(const Problem& problem, const Tensors& tensors,
                                 const Reference& expected, int threads = 0);

}  // namespace attnforge
