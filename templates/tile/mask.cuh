// mask.cuh - scores of keys that a row does not see.
#pragma once

#include "base.cuh"
#include "ptx/special.cuh"
#include "tile/kv_blocks.cuh"

namespace attnforge {

/// -inf where the row does not see the key. kLeft: there is a left bound too.
template <bool kLeft>
ATTNFORGE_DEVICE float masked(float s, int key, const VisibleKeys& visible) {
  const bool hidden = key > visible.last || (kLeft && key < visible.first);
  return hidden ? negative_infinity() : s;
}

}  // namespace attnforge
