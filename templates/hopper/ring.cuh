// ring.cuh - a position in a ring of buffers that a producer fills and consumers empty.
#pragma once

#include "base.cuh"

namespace attnforge {

/// `parity` is that of the phase in which buffer `stage` is filled; it flips with every round.
template <int kStages>
struct Ring {
  int stage = 0;
  u32 parity = 0;

  ATTNFORGE_DEVICE void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

}  // namespace attnforge
