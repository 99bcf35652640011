// shared_floats.cuh - templates/ptx/shared_floats.cuh on the host.
#pragma once

#include "base.cuh"
#include "ptx/shared_memory.cuh"

namespace attnforge {

template <int kFloats>
void load_shared_floats(float (&x)[kFloats], u32 address) {
  load_shared_array(x, address);
}

}  // namespace attnforge
