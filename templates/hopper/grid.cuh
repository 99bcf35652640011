// grid.cuh - how the blocks of a kernel share out its tiles. Compiled by the host's compiler and by
// NVRTC.
#pragma once

namespace attnforge {

/// Values of the axis `grid`.
inline constexpr int kGridPlain = 0;    // a block has one tile
inline constexpr int kGridStatic = 1;   // persistent, every gridDim-th tile
inline constexpr int kGridDynamic = 2;  // persistent, the next tile that nobody has

}  // namespace attnforge
