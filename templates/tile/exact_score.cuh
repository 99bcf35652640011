// exact_score.cuh - scores as the oracles compute them, in full fp32 and with no line of what they
// are to judge.
#pragma once

#include "base.cuh"
#include "params_fwd.h"

namespace attnforge {

/// A score before the user's text, and what it grows by with the scaled product that it is made of.
struct ExactScore {
  float value, slope;
};

template <auto C>
ATTNFORGE_DEVICE ExactScore exact_score(const FwdParams& p, float product) {
  const float scaled = product * p.softmax_scale;
  if constexpr (C.softcap) {
    const float softcap = p.softmax_scale / p.softcap_to_x;
    const float x = tanhf(scaled / softcap);
    return {softcap * x, 1.0f - x * x};
  }
  return {scaled, 1.0f};
}

/// The score of a head's rows that has no value, where there is one.
template <auto C>
inline constexpr bool kHasSink = C.sinks != 0;
template <class Params>
ATTNFORGE_DEVICE float exact_sink(const Params& params, int head) {
  return params.sinks.logits[head];
}

/// Query i of a sequence sees keys from i + from to i + to, both included, as far as they exist:
/// positions are aligned bottom-right.
struct SeenRange {
  int from, to;

  template <class Lengths>
  ATTNFORGE_DEVICE SeenRange(const FwdParams& p, const Lengths& lengths)
      : from(lengths.kv() - lengths.q() - p.window_left),
        to(lengths.kv() - lengths.q() + p.window_right) {}
};

}  // namespace attnforge
