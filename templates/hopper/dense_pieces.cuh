// dense_pieces.cuh - the pieces of dense.cuh for a kernel whose keys come by TMA.
#pragma once

#include "hopper/tma_keys.cuh"
#include "pieces/dense.cuh"

namespace attnforge {

template <auto C>
struct DenseTmaPieces : DensePieces<C> {
  using Keys = TmaKeys<C>;
};

}  // namespace attnforge
