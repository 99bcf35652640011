// elect.cuh - one lane of a warp (PTX ISA, "elect.sync"), from sm_90 on.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Whether this is the lane that acts for its warp: the same one each time. All lanes must ask. The
/// compiler knows that there is one: it moves TMA's operands to uniform registers as they are,
/// where it else writes a loop over all lanes that may want a copy.
ATTNFORGE_DEVICE bool elected() {
  u32 is_it;
  asm volatile("{ .reg .pred p; elect.sync _|p, -1; selp.u32 %0, 1, 0, p; }" : "=r"(is_it));
  return is_it != 0;
}

}  // namespace attnforge
