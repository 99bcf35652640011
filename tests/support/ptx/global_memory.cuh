// global_memory.cuh - templates/ptx/global_memory.cuh on the host, where an address that is not
// aligned is found.
#pragma once

#include <cstring>
#include <stdexcept>

#include "base.cuh"

namespace attnforge {

template <class Words>
void load_global(Words& words, const void* from, bool there) {
  std::memset(&words, 0, sizeof words);
  if (!there) return;
  if (reinterpret_cast<std::size_t>(from) % sizeof words != 0)
    throw std::logic_error("a vector is not aligned");
  std::memcpy(&words, from, sizeof words);
}

}  // namespace attnforge
