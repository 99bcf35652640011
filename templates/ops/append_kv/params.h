// params.h - new rows of K and V for caches: the argument of the kernel that writes them,
// and how it shares out its work. Compiled by g++ (launch) and NVRTC (kernel).
#pragma once

#include "base_params.h"
#include "shape.h"

namespace attnforge {

/// Two vectors of a row that a thread moves: their first elements. `second` is negative where there
/// is none. Rotated, they are kRopeHalf's first elements of pairs and second ones, or neighbours.
struct RowSlice {
  int first, second;
  int table;  // the first pair's column in the tables; negative: the slice is only copied
};

/// Whose rows are moved, in the order of AppendParams::from and ::to.
inline constexpr int kMovedK = 0;
inline constexpr int kMovedV = 1;
inline constexpr int kMovedQ = 2;

/// What the code depends on. A thread moves one slice of rows of several heads: a vector, or two
/// where rows are rotated. The strip of a warp is what its lanes move together: 1 << depth_log2
/// times as many heads as fit side by side, or of long rows one head and 32 parts. A row that is
/// quantised is not shared by warps.
struct AppendShape {
  static constexpr int kThreads = 256;                // of a block, that move rows
  static constexpr int kMostThreads = kThreads + 32;  // with a warp that keeps lengths
  static constexpr int kWarpsLog2 = 3;

  int dtype;
  int head_dim;  // of k and q; as head_dim_v and rope_dim, a multiple of 8
  int head_dim_v;
  int rope;  // kNoRope, or which elements are rotated together
  int rope_dim;
  int dtype_k = kFp32, dtype_v = kFp32;  // of caches, of 8 or 4 bits; others are as rows come
  int kv_scale = 0;                      // low_bits.h
  int kv_zero = 0;

  ATTNFORGE_CONSTEXPR bool quantises() const { return is_low_bit(dtype_k) || is_low_bit(dtype_v); }
  /// Blocks that an SM holds at once: what limits the registers of a thread.
  ATTNFORGE_CONSTEXPR int blocks_of_sm() const {
    return in_pairs(kMovedK) || in_pairs(kMovedV) ? 3 : 4;
  }
  /// Four vectors of a thread are under way at once.
  ATTNFORGE_CONSTEXPR int most_depth_log2() const {
    return rope == kNoRope && !quantises() ? 2 : 1;
  }
  ATTNFORGE_CONSTEXPR int pairs() const { return rope_dim / 2; }
  /// Elements of a vector: 16 bytes, or 8 where these would not end with the pairs.
  ATTNFORGE_CONSTEXPR int vector() const { return dtype != kFp32 && pairs() % 8 == 0 ? 8 : 4; }
  /// Whether a slice has two vectors.
  ATTNFORGE_CONSTEXPR bool in_pairs(int moved) const {
    const bool is_long = quantises() && (moved == kMovedV ? head_dim_v : head_dim) > 32 * vector();
    return is_long || (moved != kMovedV && rope != kNoRope);
  }
  ATTNFORGE_CONSTEXPR int of_slice(int moved) const {
    return in_pairs(moved) ? 2 * vector() : vector();
  }
  /// Slices of a row of k or q: those that turn, then those that do not.
  ATTNFORGE_CONSTEXPR int turns() const { return rope == kNoRope ? 0 : pairs() / vector(); }
  ATTNFORGE_CONSTEXPR int slices(int moved) const {
    if (moved == kMovedV) return ceil_div(head_dim_v, of_slice(moved));
    return turns() + ceil_div(head_dim - rope_dim, of_slice(moved));
  }
  /// Whether a warp has lanes for all slices of rows that are quantised.
  ATTNFORGE_CONSTEXPR bool rows_fit() const {
    return !quantises() || (slices(kMovedK) <= 32 && slices(kMovedV) <= 32);
  }
  /// Lanes of a warp that share a row, the heads whose rows lie side by side in a warp, and the
  /// warps that a row takes. Lanes of rows that are quantised are a power of two.
  ATTNFORGE_CONSTEXPR int lanes(int moved) const {
    const int most = slices(moved) < 32 ? slices(moved) : 32;
    if (!quantises()) return most;
    int lanes = 1;
    while (lanes < most) lanes *= 2;
    return lanes;
  }
  ATTNFORGE_CONSTEXPR int heads_at_once(int moved) const { return 32 / lanes(moved); }
  ATTNFORGE_CONSTEXPR int columns(int moved) const { return ceil_div(slices(moved), 32); }
  ATTNFORGE_CONSTEXPR int strips(int moved, int heads, int depth_log2) const {
    const int depth = 1 << depth_log2;
    return columns(moved) * ((ceil_div(heads, heads_at_once(moved)) + depth - 1) >> depth_log2);
  }
  /// The i-th of a row of k or q.
  ATTNFORGE_CONSTEXPR RowSlice slice(int i) const {
    if (rope == kNoRope) return still_slice(kMovedK, i);
    if (i < turns()) {
      const int table = i * vector();
      return rope == kRopeHalf ? RowSlice{table, table + pairs(), table}
                               : RowSlice{2 * table, 2 * table + vector(), table};
    }
    const int first = rope_dim + (i - turns()) * 2 * vector();
    return {first, first + vector() < head_dim ? first + vector() : -1, -1};
  }
  /// And of a row in which nothing turns.
  ATTNFORGE_CONSTEXPR RowSlice still_slice(int moved, int i) const {
    const int first = i * of_slice(moved), end = moved == kMovedV ? head_dim_v : head_dim;
    return {first, in_pairs(moved) && first + vector() < end ? first + vector() : -1, -1};
  }
};

/// Set by no one else: zeros before a launch and after it, but for `runs` (generator/launch.h).
struct alignas(32) AppendCounters {
  u32 arrived;  // blocks that have read all lengths that they need
  u32 unused;
  u32 runs;
};

/// How the work is shared out. Warps of a token are in one block, and take its strips in turn.
struct AppendWork {
  int depth_log2;
  int strips_end[3];  // of a token: those of k end before the first number, then come v's, then q's
  int warps_log2;     // of a token
  u32 blocks;         // of work; the grid may be smaller

  ATTNFORGE_CONSTEXPR int tokens_of_block() const {
    return 1 << (AppendShape::kWarpsLog2 - warps_log2);
  }
};

/// New rows of a token are read at sequence * stride_batch + row * stride_row, where a packed
/// token's row is among all tokens and stride_batch is 0. Position p of a sequence lies in row
/// p % page_size of page table[sequence * table_stride + p / page_size] of the caches, or without a
/// table in row p of their batch's `sequence`.
struct AppendArgument {
  TensorRef from[3];      // k, v, q; null if there is no q
  TensorRef to[3];        // caches of k and v, rotated q
  const int* cu_seqlens;  // [batch + 1]; null: each sequence has seqlen_new
  const int* used;        // [batch], before; null: none
  int* used_after;        // [batch], may be `used`; null: not written
  const int* table;       // null: caches are not in pages
  i64 table_stride;
  const float* cos;  // of position 0
  const float* sin;
  int batch, tokens, seqlen_new;
  int seqlen_kv;  // positions from here on do not exist
  int page_size, num_pages;
  int num_heads_kv, num_heads_q;
  AppendWork work;
  // What the problem says of pointers that each run brings.
  struct Planned {
    int pairs;  // columns of the tables; 0: no rope
    bool packed, lengths_after;
  } planned;
};
struct AppendParams : AppendArgument {
  // With used_after alone. Null even so: each block writes the lengths of the sequences whose first
  // tokens it has, and if used_after is `used`, it has all of their tokens.
  AppendCounters* counters;
  TensorRef scales[2];  // of the caches of k and of v that have some, fp32
};

}  // namespace attnforge
