// host_sizes.h - how large the contiguous tensors of a problem are.
#pragma once

#include <cstddef>

#include "attnforge/problem.h"

namespace attnforge {

/// Bytes, but lse in elements. kPackedQkv: q has all three, k and v are 0.
struct HostSizes {
  std::size_t q = 0, k = 0, v = 0, o = 0;
  std::size_t lse_count = 0;
};

/// Throws Error(kInvalidProblem).
HostSizes host_sizes(const Problem& problem);

}  // namespace attnforge
