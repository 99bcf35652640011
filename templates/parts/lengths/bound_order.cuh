// bound_order.cuh - Order of the query tiles that sequences can have whose lengths only the device
// knows: computed from their bound, as if all were so long.
#pragma once

#include "pieces/fixed_order.cuh"

namespace attnforge {

/// For tiles that are all under way at once, whose order does not matter: no step has to count
/// them. Blocks whose tile has no rows have nothing to do.
struct BoundOrder : FixedOrder {
  static constexpr bool kMayBeEmpty = true;
};

}  // namespace attnforge
