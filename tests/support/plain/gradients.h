// gradients.h - what automatic differentiation of a plain attention in low precision would
// give: the yardstick of gradients in fp16 and bf16.
#pragma once

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/gradients.h"
#include "reference/parts/user_code.h"

namespace attnforge {

/// The largest error of each gradient.
struct PlainGradientErrors {
  double dq = 0, dk = 0, dv = 0;
};

/// Errors against `expected` of the derivatives of plain_low_precision_error()'s operations, each
/// one's result a tensor that is rounded to the coarsest of the inputs' dtypes: probabilities (its
/// own: tensors.lse and o are not looked at, so that those must be a forward's), dout v, the
/// difference times p, the slopes of cap and code, the scale, and dk and dv of every query head
/// before they are summed. Products accumulate in fp32. Rows are those of `expected`; elements that
/// are not finite there or here are left out. Whole heads are computed, with 12 bytes for each pair
/// of a query and a key. `threads` 0: one a core.
PlainGradientErrors plain_gradient_errors(const Problem& problem, const Tensors& tensors,
                                          const ReferenceGradients& expected,
                                          const CodeFunctions& code = {}, int threads = 0);

}  // namespace attnforge
