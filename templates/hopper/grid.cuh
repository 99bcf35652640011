// grid.cuh - how the blocks of a kernel share out its tiles, and the warpgroups of a block its
// registers: one that loads hands most of its own to those that compute (setmaxnreg).
#pragma once

#include "base.cuh"

namespace attnforge {

/// Values of the axis `grid`.
inline constexpr int kGridPlain = 0;    // a block has one tile
inline constexpr int kGridStatic = 1;   // persistent, every gridDim-th tile
inline constexpr int kGridDynamic = 2;  // persistent, the next tile that nobody has
inline constexpr int kGridShares = 3;   // persistent, an equal share of the key tiles of all

/// Registers a thread. What the producer gives must be what the consumers take, or a block hangs:
/// 128 * producer + 128 * warpgroups * consumer() <= launch() * threads.
struct RegisterShare {
  static constexpr int kMost = 240;  // that setmaxnreg takes, below 255, in multiples of 8

  int warpgroups;     // that compute; one more loads
  int blocks_per_sm;  // resident
  int producer;       // after it has given the others

  ATTNFORGE_CONSTEXPR int launch() const {
    const int registers = 65536 / (128 * (warpgroups + 1) * blocks_per_sm) / 8 * 8;
    return registers > kMost ? kMost : registers;
  }
  ATTNFORGE_CONSTEXPR int consumer() const {
    const int registers = (launch() * (warpgroups + 1) - producer) / warpgroups / 8 * 8;
    return registers > kMost ? kMost : registers;
  }
};

}  // namespace attnforge
