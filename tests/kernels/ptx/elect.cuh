// elect.cuh - templates/ptx/elect.cuh on the host.
#pragma once

#include <array>

#include "base.cuh"

namespace attnforge {

/// The machine's slow warp lets the others go on for a while.
inline bool elected() {
  test::words_of_lanes(std::array<unsigned, 1>{0});
  return threadIdx.x % 32 == 0;
}

}  // namespace attnforge
