// config.h - the axes of bwd_wgmma_sm90a. Compiled by g++ (search, launch) and by NVRTC (kernel).
#pragma once

#include "backward/dq_tile.cuh"
#include "backward/params.h"
#include "hopper/grid.cuh"
#include "shape.h"

namespace attnforge {

/// How dQ is added up over key tiles.
inline constexpr int kDqAnyOrder = 0;
inline constexpr int kDqInOrder = 1;       // of the key tiles: the same bits in every run
inline constexpr int kDqFromRegs = 2;      // in any order, straight from registers
inline constexpr int kDqFromDiagonal = 3;  // in order, from the last key tile that a query sees

// Where dQ of a tile that is computed during the next comes among that one's products: before dV,
// so that its sums are added under two others, or after it.
inline constexpr int kDqFirst = 1, kDvFirst = 2;

/// Columns of a tensor from `begin` on, a multiple of 64.
struct ColumnRange {
  int begin, count;

  /// Fragments of accumulators; one where there is no column, as an array has an element.
  ATTNFORGE_CONSTEXPR int fragments() const { return count > 0 ? count / 8 : 1; }
};

struct BwdWgmmaSm90aConfig : Shape {
  int split_columns;  // 0: a warpgroup has 64 keys; 1: two have the same 64 and half of the columns
  int block_m;        // query rows in a tile
  int do_stages;      // tiles of dO in shared memory
  int ds_stages;      // tiles of dS: with 2, one barrier a tile
  int late_dq;        // 0, or dQ of a tile is computed during the next: kDqFirst, kDvFirst
  int dq_rounds;      // 1 or 2, in which dQ of a tile is computed
  int dq_stages;      // rounds of dQ in shared memory, on their way to the sums
  int dq;             // kDqAnyOrder, kDqInOrder, kDqFromRegs, kDqFromDiagonal
  int zeros_ahead;    // 1: blocks set sums of dQ of later heads to zeros; 0: bwd_rows sets all
  int grid;           // kGridPlain or kGridDynamic, of key tiles
  int group_splits;  // most blocks that share the query heads of a key tile: with more than 1 their
                     // sums go to parts in fp32, of which a step after the kernel makes dK and dV

  static constexpr int warpgroups = 2;  // that compute
  static constexpr int q_stages = 2;    // tiles of Q in shared memory
  static constexpr int blocks_per_sm = 1;
  static constexpr int kSwizzle = 128;  // bytes: a row lies in column chunks this wide

  ATTNFORGE_CONSTEXPR int chunk_columns() const { return kSwizzle / element_bytes(dtype); }
  ATTNFORGE_CONSTEXPR int block_n() const { return 64 * (split_columns ? 1 : warpgroups); }
  /// Whether a block has one key tile after another.
  ATTNFORGE_CONSTEXPR bool persistent() const { return grid == kGridDynamic; }
  ATTNFORGE_CONSTEXPR bool splits_groups() const { return group_splits > 1; }
  /// Whether shares add to one part of dK and dV, in any order, as they do to dQ.
  ATTNFORGE_CONSTEXPR bool adds_parts() const { return splits_groups() && !adds_in_order(); }
  ATTNFORGE_CONSTEXPR int num_threads() const { return 128 * (warpgroups + 1); }
  ATTNFORGE_CONSTEXPR int qk_chunks() const { return ceil_div(head_dim, chunk_columns()); }
  ATTNFORGE_CONSTEXPR int v_chunks() const { return ceil_div(head_dim_v, chunk_columns()); }
  ATTNFORGE_CONSTEXPR int row_chunk_bytes() const { return block_m * kSwizzle; }
  ATTNFORGE_CONSTEXPR int key_chunk_bytes() const { return block_n() * kSwizzle; }

  /// split_columns: whole chunks of 64; the first half is the greater one.
  ATTNFORGE_CONSTEXPR ColumnRange half_of_columns(int columns, int half) const {
    const int chunks = ceil_div(columns, chunk_columns());
    const int middle = ceil_div(chunks, 2) * chunk_columns();
    const int first = middle < columns ? middle : columns;
    return half == 0 ? ColumnRange{0, first} : ColumnRange{middle, columns - first};
  }

  /// Columns of dK and dV together that the warpgroup with more has. Each has one greater half.
  ATTNFORGE_CONSTEXPR int own_columns() const {
    if (!split_columns) return head_dim + head_dim_v;
    const int first = half_of_columns(head_dim, 0).count + half_of_columns(head_dim_v, 1).count;
    const int second = half_of_columns(head_dim, 1).count + half_of_columns(head_dim_v, 0).count;
    return first > second ? first : second;
  }

  // dQ of a tile is computed transposed: blocks of 64 columns by query rows. Rows of a block are
  // shared by as few parts as give all warpgroups as many.
  ATTNFORGE_CONSTEXPR int dq_blocks() const { return qk_chunks(); }
  ATTNFORGE_CONSTEXPR int dq_sharers() const { return warpgroups / gcd(dq_blocks(), warpgroups); }
  ATTNFORGE_CONSTEXPR int dq_parts() const { return dq_blocks() * dq_sharers(); }
  ATTNFORGE_CONSTEXPR int dq_rows() const { return block_m / dq_sharers(); }
  /// Blocks of a warpgroup.
  ATTNFORGE_CONSTEXPR int dq_own() const { return dq_parts() / warpgroups; }
  /// Three blocks, by keys: a warpgroup has all rows of one, in one product, and half of those of
  /// the middle one.
  ATTNFORGE_CONSTEXPR bool dq_pairs() const {
    return !split_columns && dq_blocks() == 3 && warpgroups == 2;
  }
  ATTNFORGE_CONSTEXPR bool adds_in_order() const {
    return dq == kDqInOrder || dq == kDqFromDiagonal;
  }
  /// Whether a warp's bulk copies add them, which takes them through shared memory.
  ATTNFORGE_CONSTEXPR bool adds_by_tma() const { return dq != kDqFromRegs; }
  /// Threads that do so, each of a warp of its own after the producer's.
  ATTNFORGE_CONSTEXPR int adders() const { return adds_by_tma() ? warpgroups : 0; }
  /// Parts of a block that add the dQ of a key tile: those threads, or the warps that compute.
  ATTNFORGE_CONSTEXPR int adding_parts() const { return adds_by_tma() ? adders() : 4 * warpgroups; }
  // zeros_ahead: bulk copies take them from here. So few that they fit beside tiles of 80 rows.
  static constexpr int kZeroBytes = 1024;
  ATTNFORGE_CONSTEXPR int zero_bytes() const { return zeros_ahead ? kZeroBytes : 0; }
  /// Counters of a tile, of those that have added to it.
  ATTNFORGE_CONSTEXPR int dq_turns() const { return adds_in_order() ? warpgroups : 0; }
  ATTNFORGE_CONSTEXPR int dq_part_bytes() const { return 64 * dq_rows() * 4; }
  /// Parts of a warpgroup in a round, and in shared memory those of all.
  ATTNFORGE_CONSTEXPR int dq_held() const { return ceil_div(dq_own(), dq_rounds); }
  ATTNFORGE_CONSTEXPR int dq_parts_of(int round) const {
    const int left = dq_own() - round * dq_held();
    return left < dq_held() ? left : dq_held();
  }
  ATTNFORGE_CONSTEXPR int dq_buffers() const {
    return adds_by_tma() ? warpgroups * dq_stages * dq_held() : 0;
  }
  ATTNFORGE_CONSTEXPR int dq_columns() const { return dq_blocks() * 64; }

  // Shared memory: K, V, rings of Q and dO, dS, P, dQ, rows, zeros, rings of lse and delta,
  // barriers, and the number of a key tile.
  ATTNFORGE_CONSTEXPR int k_bytes() const { return qk_chunks() * key_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return v_chunks() * key_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return qk_chunks() * row_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int do_bytes() const { return v_chunks() * row_chunk_bytes(); }
  ATTNFORGE_CONSTEXPR int ds_bytes() const {
    return block_n() / chunk_columns() * row_chunk_bytes();
  }
  ATTNFORGE_CONSTEXPR int stats_bytes() const { return block_m * 4; }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_bytes(); }
  ATTNFORGE_CONSTEXPR int q_begin() const { return v_begin() + v_bytes(); }
  ATTNFORGE_CONSTEXPR int do_begin() const { return q_begin() + q_stages * q_bytes(); }
  ATTNFORGE_CONSTEXPR int ds_begin() const { return do_begin() + do_stages * do_bytes(); }
  ATTNFORGE_CONSTEXPR int p_begin() const { return ds_begin() + ds_stages * ds_bytes(); }
  /// split_columns: what dS is made of in 24 bits, P or its product with the slope of the score,
  /// and beside such a product P itself.
  ATTNFORGE_CONSTEXPR int below_begin() const {
    return p_begin() + (split_columns ? (changes_scores() ? 2 : 1) : 0) * ds_bytes();
  }
  ATTNFORGE_CONSTEXPR int dq_begin() const {
    return below_begin() + (split_columns ? ds_bytes() / 2 : 0);
  }
  // Elements of the array that scores read by rows: a warp brings those of a query tile and, where
  // they are of 16 bits, of the next.
  ATTNFORGE_CONSTEXPR int row_stages() const {
    return !may_tile_rows() ? 0 : row_bytes > 2 ? 1 : 2;
  }
  ATTNFORGE_CONSTEXPR int row_box_bytes() const {
    return block_m * (block_n() * row_bytes + 16);  // no bank conflicts
  }
  /// Whether warps that do not compute store its gradient: dS of late_dq has barriers, and no warp
  /// adds dQ.
  ATTNFORGE_CONSTEXPR bool has_dargs_aside() const {
    return dargs == 2 && may_tile_rows() && late_dq != 0 && !adds_by_tma() && !persistent();
  }
  /// Warps that have no part, beside those that compute and the producer's.
  ATTNFORGE_CONSTEXPR int idle_warps() const {
    return 3 - adders() - (persistent() && zeros_ahead) - may_tile_rows() - 2 * has_dargs_aside();
  }
  ATTNFORGE_CONSTEXPR int rows_begin() const { return dq_begin() + dq_buffers() * dq_part_bytes(); }
  ATTNFORGE_CONSTEXPR int zeros_begin() const {
    return rows_begin() + row_stages() * row_box_bytes();
  }
  ATTNFORGE_CONSTEXPR int lse_begin() const { return zeros_begin() + zero_bytes(); }
  ATTNFORGE_CONSTEXPR int delta_begin() const { return lse_begin() + q_stages * stats_bytes(); }
  ATTNFORGE_CONSTEXPR int barriers_begin() const {
    return round_up(delta_begin() + do_stages * stats_bytes(), 8);
  }
  ATTNFORGE_CONSTEXPR int num_barriers() const {
    return 1 +
           2 * (q_stages + do_stages + warpgroups * dq_stages + (late_dq ? ds_stages : 0) +
                row_stages()) +
           persistent();
  }
  ATTNFORGE_CONSTEXPR int told_begin() const { return barriers_begin() + 8 * num_barriers(); }
  ATTNFORGE_CONSTEXPR int smem_bytes() const { return told_begin() + (persistent() ? 8 : 0); }

  /// A producer that asks for tiles wants more, which consumers with as many sums as they can hold
  /// do not give: there it spills.
  ATTNFORGE_CONSTEXPR bool spares_registers() const { return persistent() && own_columns() < 256; }
  ATTNFORGE_CONSTEXPR int producer_registers() const {
    return spares_registers() || has_dargs_aside() ? 40 : 24;
  }
  ATTNFORGE_CONSTEXPR RegisterShare registers() const {
    return {warpgroups, 1, producer_registers()};
  }
  ATTNFORGE_CONSTEXPR int launch_registers() const { return registers().launch(); }
  ATTNFORGE_CONSTEXPR int consumer_registers() const { return registers().consumer(); }
  /// What the main loop keeps in registers, a thread: dK and dV, and scores, dP and rounded
  /// probabilities, or dQ and what is rounded. split_columns: scores or dP, also of the next tile.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    const int scores = block_m + (split_columns ? 0 : block_m / 4);
    const int dq_sums = dq_rows() / 2 * dq_held();
    const int next = split_columns && dq_rounds > 1 ? block_m / 2 : 0;
    const int queries = dq_sums + next + (split_columns ? block_m / 4 : block_m / 2);
    return own_columns() / 2 + (scores > queries ? scores : queries);
  }
  /// late_dq: accumulators of all products of a tile. ptxas lets those of dP and dQ share registers
  /// only in some orders of products.
  ATTNFORGE_CONSTEXPR int late_accumulators() const {
    return block_m + dq_rows() / 2 * dq_held() + own_columns() / 2;
  }
  /// What concerns dQ, on its way from products to sums.
  ATTNFORGE_CONSTEXPR bool dq_valid() const {
    return block_m % (8 * dq_sharers()) == 0 && (late_dq == 0 || ds_stages == 2) &&
           late_dq <= kDvFirst && dq_rounds >= 1 && dq_rounds <= 2 && dq_stages >= 1 &&
           dq_stages <= 2 && (adds_by_tma() || dq_stages == 1) &&
           (zeros_ahead == 0 || !adds_in_order()) && dq_parts_of(dq_rounds - 1) > 0 &&
           (split_columns || dq_rounds == 1);
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return (dtype == kFp16 || dtype == kBf16) && block_m % 16 == 0 && block_m >= 16 &&
           block_m <= 256 && do_stages >= 1 && ds_stages >= 1 && ds_stages <= 2 &&
           head_dim % 8 == 0 && head_dim_v % 8 == 0 && dq_valid() &&
           (grid == kGridPlain || persistent()) && group_splits >= 1 && idle_warps() >= 0 &&
           (!persistent() || !split_columns) &&
           (split_columns == 0 || (late_dq == 0 && ds_stages == 1));
  }
};

/// dq_sums of a tile as the accumulators lie: per part (block of 64 columns, share of the rows) a
/// float4 a thread for each 8 rows.
template <auto C>
struct BwdWgmmaSm90aDqTile {
  static constexpr int kRows = C.block_m, kColumns = C.dq_columns(), kNeighbours = 4;
  static constexpr DqQuad kQuad{{0, 1, 0, 1}, {0, 0, 8, 8}};

  /// In floats, from the first of the tile.
  ATTNFORGE_CONSTEXPR static int offset(int row, int column) {
    const int block = column / 64, share = row / C.dq_rows();
    const int r = row % C.dq_rows(), c = column % 64;
    const int thread = c / 16 * 32 + c % 8 * 4 + r % 8 / 2;
    const int element = c % 16 / 8 * 2 + r % 2;
    return (block * C.dq_sharers() + share) * 64 * C.dq_rows() + (r / 8 * 128 + thread) * 4 +
           element;
  }
};

/// zeros_ahead: a block sets its share of the sums of the head `lag` after its own to zeros, which
/// are in the L2 cache when that head's blocks add to them. They all begin after it. Heads are K/V
/// heads of all sequences, in the order in which blocks take them.
struct ZerosAhead {
  int lag;
  int* cleared;  // of each head: blocks that set their share
};

/// q, k, v and dout are read through the maps. group_splits > 1: the argument has GroupSplitParams,
/// and a head of the order and of the zeros is a share of a K/V head's query heads.
struct BwdWgmmaSm90aParams : BwdParams {
  BwdScratch scratch;
  TileOrder order;  // of key tiles, a head is a K/V head
  // In any order under a mask: blocks of one in so many groups of heads walk from the last query
  // tile on, others from the diagonal on. 0: all of those.
  int from_end_every;
  int* dq_turns;  // of query tiles, dq_turns() each, zeros; 0: unread
  ZerosAhead zeros;
  int* added;  // of each K/V head, zeros: parts of its key tiles that have added all of their dQ
  int* given;  // persistent: how many key tiles blocks have asked for, from 0 on; or nullptr
  TensorMap q, k, v, dout;  // {column, row, head, batch}
};

}  // namespace attnforge
