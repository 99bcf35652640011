// movmatrix.cuh - templates/ptx/movmatrix.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline u32 movmatrix_trans(u32 x) {
  const auto& all = test::of_all_lanes(x);
  const u32 row = test::thread_index.x % 32 / 4, column = test::thread_index.x % 4 * 2;
  const auto element = [&](u32 r, u32 c) {
    return static_cast<u32>(all[r * 4 + c / 2]) >> c % 2 * 16 & 0xffffu;
  };
  return element(column, row) | element(column + 1, row) << 16;
}

}  // namespace attnforge
