// score.cuh - what happens to a score between Q K^T and softmax: soft cap and mask, as functors of
// the main loop.
#pragma once

#include "base.cuh"
#include "ptx/special.cuh"
#include "tile/kv_blocks.cuh"

namespace attnforge {

/// s = softcap * tanh(s * softmax_scale / softcap), given back in units of 1 / softmax_scale so
/// that the softmax multiplies by the same factor whether there is a cap or not.
struct SoftcapScore {
  float to_tanh;    // softmax_scale / softcap
  float from_tanh;  // softcap / softmax_scale

  ATTNFORGE_DEVICE explicit SoftcapScore(const FwdParams& p)
      : to_tanh(p.softmax_scale * reciprocal_approx(p.softcap)),
        from_tanh(p.softcap * reciprocal_approx(p.softmax_scale)) {}
  ATTNFORGE_DEVICE float operator()(float s) const { return from_tanh * tanh_by_exp2(s * to_tanh); }

  /// All scores of an array.
  template <class T, int kCount>
  ATTNFORGE_DEVICE void cap(T (&s)[kCount]) const {
#pragma unroll
    for (int i = 0; i < kCount; ++i) cap(s[i]);
  }
  ATTNFORGE_DEVICE void cap(float& s) const { s = (*this)(s); }
};

/// -inf where the row does not see the key. kLeft: there is a left bound too.
template <bool kLeft>
ATTNFORGE_DEVICE float masked(float s, int key, const VisibleKeys& visible) {
  const bool hidden = key > visible.last || (kLeft && key < visible.first);
  return hidden ? negative_infinity() : s;
}

}  // namespace attnforge
