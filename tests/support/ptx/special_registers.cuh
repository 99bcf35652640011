// special_registers.cuh - templates/ptx/special_registers.cuh on the host.
#pragma once

#include "base.cuh"

namespace attnforge {

inline int thread_index() { return static_cast<int>(test::thread_index.x); }
inline int block_index() { return static_cast<int>(test::block_index.x); }

}  // namespace attnforge
