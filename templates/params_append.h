// params_append.h - new rows of K and V for caches: the argument of the kernel that writes them,
// and how it shares out its work. Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base.cuh"
#include "params_fwd.h"
#include "shape.h"

namespace attnforge {

/// Two vectors of a row that a thread moves: their first elements. `second` is negative where there
/// is none. Rotated, they are kRopeHalf's first elements of pairs and second ones, or neighbours.
struct RowPart {
  int first, second;
  int table;  // the first pair's column in the tables; negative: the part is only copied
};

/// What the code depends on. A thread moves one part of a row of one head: a vector, or two where
/// rows are rotated.
struct AppendShape {
  static constexpr int kThreads = 128;  // of a block

  int dtype;
  int head_dim;  // of k and q; as head_dim_v and rope_dim, a multiple of 8
  int head_dim_v;
  int rope;  // kNoRope, or which elements are rotated together
  int rope_dim;

  ATTNFORGE_HOST_DEVICE constexpr int pairs() const { return rope_dim / 2; }
  /// Elements of a vector: 16 bytes, or 8 where these would not end with the pairs.
  ATTNFORGE_HOST_DEVICE constexpr int vector() const {
    return dtype != kFp32 && pairs() % 8 == 0 ? 8 : 4;
  }
  /// Parts of a row of k or q: those that turn, then those that are copied.
  ATTNFORGE_HOST_DEVICE constexpr int turns() const {
    return rope == kNoRope ? 0 : pairs() / vector();
  }
  ATTNFORGE_HOST_DEVICE constexpr int parts() const {
    return rope == kNoRope ? head_dim / vector()
                           : turns() + ceil_div(head_dim - rope_dim, 2 * vector());
  }
  ATTNFORGE_HOST_DEVICE constexpr int parts_v() const { return head_dim_v / vector(); }
  /// Of a token, and the warps that move them.
  ATTNFORGE_HOST_DEVICE constexpr int parts_of_token(int heads_kv, int heads_q) const {
    return heads_kv * (parts() + parts_v()) + heads_q * parts();
  }
  ATTNFORGE_HOST_DEVICE constexpr int warps_of_token(int heads_kv, int heads_q) const {
    return ceil_div(parts_of_token(heads_kv, heads_q), 32);
  }

  /// The i-th of a row of k or q.
  ATTNFORGE_HOST_DEVICE constexpr RowPart part(int i) const {
    if (rope == kNoRope) return {i * vector(), -1, -1};
    if (i < turns()) {
      const int table = i * vector();
      return rope == kRopeHalf ? RowPart{table, table + pairs(), table}
                               : RowPart{2 * table, 2 * table + vector(), table};
    }
    const int first = rope_dim + (i - turns()) * 2 * vector();
    return {first, first + vector() < head_dim ? first + vector() : -1, -1};
  }
};

/// Set by no one else: zeros before a launch and after it, but for `runs` (generator/launch.h).
struct alignas(32) AppendCounters {
  u32 arrived;  // blocks that have read all lengths that they need
  u32 unused;
  u32 runs;
};

/// New rows of a token are read at sequence * stride_batch + row * stride_row, where a packed
/// token's row is among all tokens and stride_batch is 0. Position p of a sequence lies in row
/// p % page_size of page table[sequence * table_stride + p / page_size] of the caches, or without a
/// table in row p of their batch's `sequence`.
struct AppendParams {
  TensorRef k, v, q;  // q: null if there is none
  TensorRef k_cache, v_cache, rotated_q;
  const int* cu_seqlens;  // [batch + 1]; null: each sequence has seqlen_new
  const int* used;        // [batch], before; null: none
  int* used_after;        // [batch], may be `used`; null: not written
  const int* table;       // null: caches are not in pages
  i64 table_stride;
  const float* cos;  // of position 0
  const float* sin;
  AppendCounters* counters;  // null without used_after
  int batch, tokens, seqlen_new;
  int seqlen_kv;  // positions from here on do not exist
  int page_size, num_pages;
  int num_heads_kv, num_heads_q;
  u32 blocks;  // of work; the grid may be smaller
};

}  // namespace attnforge
