// rotate_pair.cuh - two elements of a row under the rotary embedding (Su et al. 2021).
#pragma once

#include "base.cuh"

namespace attnforge {

/// (x, y) turned by the angle of cos and sin.
ATTNFORGE_DEVICE void rotate_pair(float& x, float& y, float cos, float sin) {
  const float rotated_x = x * cos - y * sin;
  y = y * cos + x * sin;
  x = rotated_x;
}

}  // namespace attnforge
