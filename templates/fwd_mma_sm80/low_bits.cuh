// low_bits.cuh - K and V of 8 or 4 bits in fwd_mma_sm80: they lie in shared memory as in global
// memory, and each lane takes what ldmatrix gives it.
#pragma once

#include "fwd_mma_sm80/block_loader.cuh"
#include "fwd_mma_sm80/kernel.cuh"
#include "fwd_mma_sm80/low_bit_output.cuh"
#include "fwd_mma_sm80/low_bit_scores.cuh"
#include "pieces/scaled_keys.cuh"

namespace attnforge {

/// Keys of K and of V, each with its scales where rows have some.
template <auto C, class Pieces>
struct LowBitKeys {
  template <int kDtype, int kScales, int kBegin, bool kOfV>
  struct Of {
    using Type = ScaledKeys<typename Pieces::template Keys<kDtype>,
                            typename Pieces::template Keys<kFp32>,
                            ScaleLoader<C.block_n, kScales, C.num_threads()>, kBegin, kOfV>;
  };
  template <int kDtype, int kBegin, bool kOfV>
  struct Of<kDtype, 0, kBegin, kOfV> {
    using Type = typename Pieces::template Keys<kDtype>;
  };
  /// Scales in a tensor of their own.
  ATTNFORGE_CONSTEXPR static int apart(int dtype, int scales) {
    return is_blocks(dtype) ? 0 : scales;
  }
  using K = typename Of<C.dtype_k, apart(C.dtype_k, C.k_row_scales()), C.k_code_bytes(),
                        false>::Type;
  using V = typename Of<C.dtype_v, apart(C.dtype_v, C.v_row_scales()), C.v_code_bytes(),
                        true>::Type;

  template <class Plain, int kDtype, int kColumns, int kPitch, int kScalesBegin>
  struct LoaderOf {
    using Type = Plain;
  };
  template <class Plain, int kDtype, int kColumns, int kPitch, int kScalesBegin>
  requires(is_blocks(kDtype)) struct LoaderOf<Plain, kDtype, kColumns, kPitch, kScalesBegin> {
    using Type = BlockLoader<kDtype, C.block_n, kColumns, kPitch, C.num_threads(), kScalesBegin>;
  };
  template <class Plain>
  using KLoader = typename LoaderOf<Plain, C.dtype_k, C.head_dim, C.k_pitch(),
                                    C.k_code_bytes()>::Type;
  template <class Plain>
  using VLoader = typename LoaderOf<Plain, C.dtype_v, C.head_dim_v, C.v_pitch(),
                                    C.v_code_bytes()>::Type;
};

template <auto C>
struct LowBitState<C, true> {
  float k_factor[C.row_fragments()][2];         // of scores of a lane's rows, before scales of keys
  float v_factor = __int_as_float(0x7f800000);  // of scales of V, before all else
};

template <class Kernel>
struct LowBitProducts : LowBitScores<Kernel>, LowBitOutput<Kernel> {};

}  // namespace attnforge
