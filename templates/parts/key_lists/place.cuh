// place.cuh - whose list of key groups is written, and which keys 16 of its rows see by position.
#pragma once

#include "parts/key_lists/params.h"
#include "tile/visible_keys.cuh"

namespace attnforge {

/// Which query tile a list is of. `head` is a head of the mask.
struct ListPlace {
  int m_block, head, sequence;

  ATTNFORGE_DEVICE ListPlace(const KeyListParams& lists, int index)
      : m_block(index % lists.m_blocks),
        head(index / lists.m_blocks % lists.heads),
        sequence(index / lists.m_blocks / lists.heads) {}
};

/// Keys of 16 rows: first to last are seen by some row, all_first to all_last by all.
struct FragmentKeys {
  int first, last, all_first, all_last;

  template <class Lengths>
  ATTNFORGE_DEVICE static FragmentKeys of(const FwdParams& p, const Lengths& lengths,
                                          int first_query) {
    if (first_query >= lengths.q()) return {0, -1, 0, -1};
    const int last_query = min(first_query + 15, lengths.q() - 1);
    const VisibleKeys top = VisibleKeys::of_row(p, lengths, first_query),
                      bottom = VisibleKeys::of_row(p, lengths, last_query);
    return {top.first, bottom.last, bottom.first, top.last};
  }
};

}  // namespace attnforge
