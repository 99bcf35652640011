// common_values.h - values of fields that mean the same to several families.
#pragma once

#include <vector>

#include "generator/config.h"
#include "generator/shape.h"

namespace attnforge {

inline constexpr Allowed kFlag = from_to(0, 1);
inline constexpr Allowed kPackedHeads = from_to(1, 512);
inline constexpr Allowed kHeadGroupsMb = from_to(0, 1 << 30);

/// Those of `sizes` of key tiles that blocks of the problem's mask divide, or that divide them.
inline std::vector<int> fitting(const Shape& shape, std::vector<int> sizes) {
  std::erase_if(sizes, [&](int block_n) { return !shape.blocks_fit(block_n); });
  return sizes;
}

}  // namespace attnforge
