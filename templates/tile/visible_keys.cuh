// visible_keys.cuh - which keys a query row sees: the causal mask, windows, the sequence's end.
#pragma once

#include "base_params.h"
#include "ptx/special.cuh"

namespace attnforge {

/// What one query row sees: keys first to last, both included. Empty when first > last.
struct VisibleKeys {
  int first, last;

  /// Lengths is that of the row's sequence (templates/pieces/README.md).
  template <class Lengths>
  ATTNFORGE_DEVICE static VisibleKeys of_row(const FwdParams& p, const Lengths& lengths,
                                             int query) {
    const int position = query + lengths.kv() - lengths.q();  // bottom-right alignment
    return {position - p.window_left, min(lengths.kv() - 1, position + p.window_right)};
  }
};

/// -inf where the row does not see the key. kLeft: there is a left bound too.
template <bool kLeft>
ATTNFORGE_DEVICE float masked(float s, int key, const VisibleKeys& visible) {
  const bool hidden = key > visible.last || (kLeft && key < visible.first);
  return hidden ? negative_infinity() : s;
}

}  // namespace attnforge
