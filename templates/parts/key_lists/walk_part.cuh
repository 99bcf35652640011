// walk_part.cuh - which tiles of a list some rows of its query tile see: written by the step that
// makes the list, read by who walks over it.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Which tiles of a list some of the rows see anything of, in one word: those before them in the
/// walk, and how many. What does not fit is all of the list.
struct WalkPart {
  static constexpr int kMost = 0xfffe;
  static constexpr u32 kAll = ~0u;
  int before, count;

  ATTNFORGE_DEVICE u32 word() const {
    return before + count > kMost ? kAll : u32(before) | u32(count) << 16;
  }
  ATTNFORGE_DEVICE static WalkPart of(u32 word, int tiles) {
    if (word == kAll) return {0, tiles};
    return {int(word & 0xffff), int(word >> 16)};
  }
};

}  // namespace attnforge
