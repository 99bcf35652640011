// kv_blocks.cuh - the dense K/V block iterator: which key tiles a query tile visits, and which of
// them need a mask.
#pragma once

#include "base.cuh"
#include "params_fwd.h"

namespace attnforge {

/// What one query row sees: keys first to last, both included. Empty when first > last.
struct VisibleKeys {
  int first, last;

  ATTNFORGE_DEVICE static VisibleKeys of_row(const FwdParams& p, int query) {
    const int position = query + p.seqlen_kv - p.seqlen_q;  // bottom-right alignment
    return {position - p.window_left, min(p.seqlen_kv - 1, position + p.window_right)};
  }
};

/// Tiles of block_n keys, walked from end - 1 down to begin. Tiles in [clear_begin, clear_end) are
/// visible to every row.
struct KvBlocks {
  int begin, clear_begin, clear_end, end;

  /// Of the queries first_query to last_query, both included. kLeftBound: rows do not see all keys
  /// to their left; else both beginnings are the constant 0, which costs the main loop no register.
  template <bool kLeftBound>
  ATTNFORGE_DEVICE static KvBlocks of_queries(const FwdParams& p, int block_n, int first_query,
                                              int last_query) {
    const VisibleKeys top = VisibleKeys::of_row(p, first_query),
                      bottom = VisibleKeys::of_row(p, last_query);
    KvBlocks blocks;
    blocks.begin = kLeftBound ? max(top.first, 0) / block_n : 0;
    blocks.end = max((bottom.last + block_n) / block_n, blocks.begin);
    blocks.clear_end = min(max(max(top.last + 1, 0) / block_n, blocks.begin), blocks.end);
    const int all_see_from = kLeftBound ? (max(bottom.first, 0) + block_n - 1) / block_n : 0;
    blocks.clear_begin = kLeftBound ? min(max(all_see_from, blocks.begin), blocks.clear_end) : 0;
    return blocks;
  }
};

}  // namespace attnforge
