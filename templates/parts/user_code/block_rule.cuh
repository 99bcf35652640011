// block_rule.cuh - the user's mask text in the partial blocks of a BlockMask.
#pragma once

#include "base.cuh"
#include "parts/user_code/code.cuh"

namespace attnforge {

/// Code is the entry's UserCode.
template <class Code>
struct BlockText {
  template <class QueryTile>
  ATTNFORGE_DEVICE static auto of_row(const QueryTile& tile, int row, int lane_key) {
    const UserRow<Code> user(tile, row, lane_key);
    return [user](int offset) { return user.mask(offset); };
  }
};

}  // namespace attnforge
