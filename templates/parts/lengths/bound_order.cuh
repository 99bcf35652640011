// bound_order.cuh - Order of query tiles from the bound of lengths that only the device knows.
#pragma once

#include "pieces/fixed_order.cuh"

namespace attnforge {

/// For tiles that are all under way at once, whose order does not matter: no step has to count
/// them. Blocks whose tile has no rows have nothing to do.
struct BoundOrder : FixedOrder {
  static constexpr bool kMayBeEmpty = true;
};

}  // namespace attnforge
