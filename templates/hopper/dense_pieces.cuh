// dense_pieces.cuh - the pieces of dense.cuh for a kernel whose keys come by TMA.
#pragma once

#include "hopper/no_job.cuh"
#include "hopper/tma_keys.cuh"
#include "pieces/dense.cuh"

namespace attnforge {

template <auto C>
struct DenseTmaPieces : DensePieces<C> {
  using Keys = TmaKeys<C>;
  using QJob = NoJob;
  using KJob = NoJob;
  using VJob = NoJob;
};

}  // namespace attnforge
