// config.h - the axes of fwd_wgmma_sm90a. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "base_params.h"
#include "hopper/grid.cuh"
#include "shape.h"

namespace attnforge {

struct FwdWgmmaSm90aConfig : Shape {
  int warpgroups;  // that compute; each has 64 query rows
  int block_n;     // keys in a tile
  int k_stages;    // tiles of K in shared memory
  int v_stages;    // tiles of V
  int q_in_regs;   // 1: Q is read into registers once, and its shared memory is free for the next
  int q_stages;    // query tiles in shared memory: with 2, the next comes during this one
  int pingpong;    // 1: warpgroups issue their products in turn
  int grid;        // hopper/grid.cuh; persistent blocks load the next tile while they finish one
  int blocks_per_sm;  // resident blocks that registers are to leave room for
  int swizzle;        // bytes: a row lies in column chunks this wide
  int pack_gqa;       // query heads of a K/V head in one query tile, next to each other; 1: none
  int head_group_mb;  // heads are walked in groups of this many MB of K and V; 0: one after another
  int own_lists;  // 1: blocks make the list of keys of their query tile themselves; 0: a step does

  ATTNFORGE_CONSTEXPR int block_m() const { return 64 * warpgroups; }
  ATTNFORGE_CONSTEXPR int num_threads() const { return 128 * (warpgroups + 1); }
  ATTNFORGE_CONSTEXPR int chunk_columns() const { return swizzle / element_bytes(dtype); }
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return ceil_div(head_dim, chunk_columns()); }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return ceil_div(head_dim_v, chunk_columns()); }
  /// Packed heads that do not divide 64: one box has all queries of a tile, and one more than fill
  /// it.
  ATTNFORGE_CONSTEXPR bool odd_pack() const { return 64 % pack_gqa != 0; }
  /// Whether a tile may begin inside a query. Registers are read from any row, products from
  /// multiples of 8 alone; of few heads the rows that whole queries leave free are few.
  ATTNFORGE_CONSTEXPR bool cuts_queries() const { return odd_pack() && q_in_regs && pack_gqa > 32; }
  /// Else a tile has as many whole queries as it has rows for.
  ATTNFORGE_CONSTEXPR int tile_rows() const {
    return cuts_queries() ? block_m() : block_m() / pack_gqa * pack_gqa;
  }
  /// Whether the first query tile may begin before row 0 (early_rows()). A text that reads arrays
  /// by rows must not see such rows; lists count from row 0.
  ATTNFORGE_CONSTEXPR bool begins_early() const {
    return right_bound && !left_bound && pack_gqa == 1 && grid != kGridShares && !user_score &&
           !has_key_lists();
  }
  // Tiles are stored chunk after chunk, Q's warpgroup after warpgroup or as one box.
  ATTNFORGE_CONSTEXPR int q_boxes() const { return odd_pack() ? 1 : warpgroups; }
  ATTNFORGE_CONSTEXPR int box_queries() const {
    return ceil_div(block_m() / q_boxes() + (cuts_queries() ? pack_gqa - 1 : 0), pack_gqa);
  }
  ATTNFORGE_CONSTEXPR int box_rows() const { return box_queries() * pack_gqa; }
  ATTNFORGE_CONSTEXPR int q_chunk_bytes() const { return round_up(box_rows(), 8) * swizzle; }
  ATTNFORGE_CONSTEXPR int q_warpgroup_bytes() const {
    return 64 * swizzle * (odd_pack() ? 1 : qk_chunks());
  }
  ATTNFORGE_CONSTEXPR int kv_chunk_bytes() const { return block_n * swizzle; }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return q_boxes() * qk_chunks() * q_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int k_bytes() const { return qk_chunks() * kv_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return v_chunks() * kv_chunk_bytes(); }
  // Q, K, V, the barriers, and the number of the tile that each Q belongs to.
  ATTNFORGE_CONSTEXPR int k_begin() const { return q_stages * q_bytes(); }
  /// After a tile of K lie scales of its rows (kScaleToken), 256 at most, or bits of a mask's text.
  ATTNFORGE_CONSTEXPR bool has_key_scales() const { return dtype == kE4m3 && kv_scale == 3; }
  ATTNFORGE_CONSTEXPR bool brings_bits() const { return text_bits && has_key_lists(); }
  ATTNFORGE_CONSTEXPR int bits_bytes() const { return 4 * block_m() * bits_row_words(block_n); }
  ATTNFORGE_CONSTEXPR int k_stage_bytes() const {
    return k_bytes() + round_up(1024 * has_key_scales() + bits_bytes() * brings_bits(), 1024);
  }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_begin() + k_stages * k_stage_bytes(); }
  // Of e4m3 also V with neighbouring keys in its rows, in chunks as wide as their swizzle: a
  // product takes 8 bits along k alone.
  ATTNFORGE_CONSTEXPR bool transposes_v() const { return dtype == kE4m3; }
  ATTNFORGE_CONSTEXPR int keys_swizzle() const {
    return block_n % 128 == 0 ? 128 : block_n % 64 == 0 ? 64 : 32;
  }
  ATTNFORGE_CONSTEXPR int keys_chunk_bytes() const { return head_dim_v * keys_swizzle(); }
  ATTNFORGE_CONSTEXPR int transposed_begin() const { return v_begin() + v_stages * v_bytes(); }
  ATTNFORGE_CONSTEXPR int transposed_bytes() const {
    return transposes_v() ? head_dim_v * block_n : 0;
  }
  ATTNFORGE_CONSTEXPR int row_ring_begin() const {
    return transposed_begin() + v_stages * transposed_bytes();
  }
  // Tiles of the array that scores read by rows, as many as of K, and two barriers for each.
  ATTNFORGE_CONSTEXPR int row_tile_bytes() const { return block_m() * block_n * row_bytes; }
  ATTNFORGE_CONSTEXPR int barriers_begin() const {
    return row_ring_begin() + (may_tile_rows() ? k_stages * (row_tile_bytes() + 16) : 0);
  }
  ATTNFORGE_CONSTEXPR int num_barriers() const {
    return 2 * (q_stages + k_stages + v_stages) + (k_job() ? k_stages : 0) +
           (v_job() ? v_stages : 0);
  }
  /// Jobs (hopper/workers.cuh): other formats become Q's, V of e4m3 is transposed, scales come.
  ATTNFORGE_CONSTEXPR bool k_job() const { return dtype_k != dtype || has_key_scales(); }
  ATTNFORGE_CONSTEXPR bool v_job() const { return dtype_v != dtype || transposes_v(); }
  ATTNFORGE_CONSTEXPR bool has_job() const { return k_job() || v_job(); }
  ATTNFORGE_CONSTEXPR bool has_workers() const { return has_job() || may_tile_rows(); }
  ATTNFORGE_CONSTEXPR int tiles_begin() const { return barriers_begin() + 8 * num_barriers(); }
  /// Whether a query tile may be begun while the one before is stored. Q in registers would be read
  /// between two products; of lists those alone that warpgroups in turns walk over in parts.
  ATTNFORGE_CONSTEXPR bool joins() const {
    return grid != kGridPlain && q_stages > 1 && !q_in_regs &&
           (!has_key_lists() || (pingpong && !has_block_mask()));
  }
  /// Whether consumers are told all of a query tile, which takes divisions; tells(): its number.
  ATTNFORGE_CONSTEXPR bool tells_all() const {
    return has_key_lists() || has_tile_queue() || joins() || grid == kGridShares;
  }
  ATTNFORGE_CONSTEXPR bool tells() const { return grid == kGridDynamic || tells_all(); }
  ATTNFORGE_CONSTEXPR int tile_bytes() const {
    if (has_key_lists() || grid == kGridShares) return 48;
    return has_tile_queue() ? 32 : tells_all() ? 16 : 4;
  }
  /// Warps that load a tile of so many boxes: four begin their copies sooner than one. Where blocks
  /// ask for query tiles, one warp alone knows the answers; workers are the others.
  ATTNFORGE_CONSTEXPR int loading_warps(int boxes) const {
    return (grid != kGridPlain && grid != kGridShares) || has_workers() ? 1 : boxes < 4 ? boxes : 4;
  }
  /// Gathered key tiles: the groups of each that is in K's ring.
  ATTNFORGE_CONSTEXPR int key_groups() const { return key_groups_of(block_n); }
  ATTNFORGE_CONSTEXPR int groups_begin() const {
    return round_up(tiles_begin() + tile_bytes() * q_stages, has_key_lists() ? 8 : 1);
  }
  /// The block's own list, and what it is made of (parts/key_lists/own_list.cuh).
  ATTNFORGE_CONSTEXPR static int own_list_groups() { return 256; }
  ATTNFORGE_CONSTEXPR int own_list_begin() const {
    return round_up(groups_begin() + (has_key_lists() ? 8 * key_groups() * k_stages : 0),
                    own_lists ? 16 : 1);
  }
  ATTNFORGE_CONSTEXPR int own_list_bytes() const {
    return 8 * own_list_groups() + 16 * (block_m() / 16) + 4 * (num_threads() / 32) + 16;
  }
  ATTNFORGE_CONSTEXPR int smem_bytes() const {
    return own_list_begin() + (own_lists ? own_list_bytes() : 0);
  }

  ATTNFORGE_CONSTEXPR int producer_registers() const {
    if (has_workers()) return has_job() && (!transposes_v() || has_tile_queue()) ? 56 : 40;
    if (has_tile_queue() || grid == kGridShares) return warpgroups == 3 ? 32 : 40;
    return warpgroups == 3 ? 32 : 24;
  }
  ATTNFORGE_CONSTEXPR RegisterShare registers() const {
    return {warpgroups, blocks_per_sm, producer_registers()};
  }
  ATTNFORGE_CONSTEXPR int launch_registers() const { return registers().launch(); }
  ATTNFORGE_CONSTEXPR int consumer_registers() const { return registers().consumer(); }

  ATTNFORGE_CONSTEXPR bool tiles_valid() const {
    return warpgroups >= 1 && warpgroups <= 3 && block_n % 16 == 0 && block_n >= 16 &&
           block_n <= 256 && k_stages >= 1 && v_stages >= 1 && q_stages >= 1 && q_stages <= 2 &&
           (swizzle == 128 || swizzle == 64 || swizzle == 32) && pack_gqa <= block_m();
  }
  ATTNFORGE_CONSTEXPR bool lists_valid() const {
    return (!has_key_lists() || (pack_gqa == 1 && blocks_fit(block_n) && grid != kGridShares)) &&
           (!own_lists || (may_list_alone() && grid == kGridPlain));
  }
  ATTNFORGE_CONSTEXPR bool dtypes_valid() const {
    if (dtype != kE4m3) return dtype == kFp16 || dtype == kBf16;
    return dtype_k == dtype && dtype_v == dtype && (dtype_o == kFp16 || dtype_o == kBf16) &&
           block_n % 32 == 0 && head_dim_v % 16 == 0 && !changes_scores() && !has_key_lists();
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return dtypes_valid() && tiles_valid() && lists_valid() && (!pingpong || warpgroups > 1) &&
           blocks_per_sm >= 1 && rope == kNoRope && consumer_registers() >= launch_registers();
  }
};

/// Counters by which the blocks of a kGridDynamic share out the tiles. Zeros when a kernel starts,
/// and again when it has ended, but for `runs`; no two kernels with the same counters at a time. 32
/// bytes that begin on a multiple of 32 serve.
struct TileCounters {
  int given;      // tiles, beyond the first of each block
  int ended;      // blocks
  unsigned runs;  // kernels that ended, modulo 2^32; for the host, any value to begin with
};

struct FwdWgmmaSm90aParams {
  FwdParams fwd;  // q, k and v are read through the maps
  TileOrder order;
  int tiles;               // query tiles of all heads and sequences
  TileCounters* counters;  // kGridDynamic; else unread
  TensorMap q;             // {column, packed head, query, head, batch}
  TensorMap k, v;          // {column, key, head, batch}
};

}  // namespace attnforge
