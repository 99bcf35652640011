// dense_pieces.cuh - the dense pieces of a kernel whose keys come by TMA.
#pragma once

#include "hopper/tma_keys.cuh"
#include "pieces/dense_without_keys.cuh"

namespace attnforge {

template <auto C>
struct DenseTmaPieces : DensePiecesWithoutKeys<C> {
  using Keys = TmaKeys<C>;
};

}  // namespace attnforge
