// dense.cuh - the dense pieces of a kernel by cp.async: what a generated entry starts from.
#pragma once

#include "pieces/dense_without_keys.cuh"
#include "pieces/strided_keys.cuh"

namespace attnforge {

template <auto C>
struct DensePieces : DensePiecesWithoutKeys<C> {
  template <int kDtype>
  using Keys = StridedKeys<kDtype>;
};

}  // namespace attnforge
