// params.h - where a run has the scales of k and v of 8 or 4 bits.
#pragma once

#include "base_params.h"

namespace attnforge {

/// In the argument of a kernel, after the family's own. fp32, as ScaleTensor (attnforge/plan.h) has
/// them; null where there are none.
struct alignas(16) ScaleParams {
  TensorRef k, v;
};
/// Where q has some, too.
struct alignas(16) QkvScaleParams : ScaleParams {
  TensorRef q;
};

/// The argument of a kernel whose own is a Params.
template <class Params, class Scales = ScaleParams>
struct WithScales : Params {
  Scales scales;
};

}  // namespace attnforge
