// common_values.h - values of fields that mean the same to several families.
#pragma once

#include "generator/config.h"

namespace attnforge {

inline constexpr Allowed kFlag = from_to(0, 1);
inline constexpr Allowed kPackedHeads = from_to(1, 512);
inline constexpr Allowed kHeadGroupsMb = from_to(0, 1 << 30);

}  // namespace attnforge
