// params.h - where a run has the logits of its sinks.
#pragma once

#include "base.cuh"

namespace attnforge {

/// In the argument of a kernel, after the family's own.
struct alignas(16) SinkParams {
  const float* logits;  // [num_heads_q]
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithSinks : Params {
  SinkParams sinks;
};

}  // namespace attnforge
