// exact_score.cuh - rows and scores of the oracles: full fp32, no line of what they are to judge.
#pragma once

#include "shape.h"
#include "tile/elements.cuh"

namespace attnforge {

/// Element d of a row of q or k, whose value is x, after rotation by a row of the tables.
template <auto C, int kDtype, class Tables>
ATTNFORGE_DEVICE float exact_rotated(const Tables& rope, int table_row, const char* row, int d,
                                     float x) {
  static_assert(C.rope_dim % 2 == 0 && C.rope_dim > 0 && C.rope_dim <= C.head_dim,
                "whole pairs of a row");
  if (d >= C.rope_dim) return x;
  constexpr int kPairs = C.rope_dim / 2;
  const bool interleaved = C.rope == kRopeInterleaved;
  const bool first = interleaved ? d % 2 == 0 : d < kPairs;
  const int other = d + (first ? 1 : -1) * (interleaved ? 1 : kPairs);
  const i64 at = i64(table_row) * kPairs + (interleaved ? d / 2 : first ? d : other);
  const float y = load_1<kDtype>(row + other * element_bytes(kDtype));
  return x * rope.cos[at] + (first ? -y : y) * rope.sin[at];
}

// Element d, whose value is x, of a query's row of q or of a key's of k, as scores take it.
template <auto C, class Params>
ATTNFORGE_DEVICE float exact_element_of_query(const Params& params, int query, const char* row,
                                              int d, float x) {
  if constexpr (C.rope == kNoRope) {
    return x;
  } else {
    return exact_rotated<C, C.dtype>(params.rope, params.rope.q_offset + query, row, d, x);
  }
}
template <auto C, class Params>
ATTNFORGE_DEVICE float exact_element_of_key(const Params& params, int key, const char* row, int d,
                                            float x) {
  if constexpr (C.rope == kNoRope) {
    return x;
  } else {
    return exact_rotated<C, C.dtype_k>(params.rope, params.rope.k_offset + key, row, d, x);
  }
}

/// A score before the user's text, and what it grows by with the scaled product that it is made of.
struct ExactScore {
  float value, slope;
};

template <auto C, class Params>
ATTNFORGE_DEVICE ExactScore exact_score(const Params& params, int /*head*/, float product) {
  const FwdParams& p = params.fwd;
  const float scaled = product * p.softmax_scale;
  ExactScore score{scaled, 1.0f};
  if constexpr (C.softcap) {
    const float softcap = p.softmax_scale / p.softcap_to_x;
    const float x = tanhf(scaled / softcap);
    score = {softcap * x, 1.0f - x * x};
  }
  return score;
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
