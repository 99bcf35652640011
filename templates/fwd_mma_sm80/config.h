// config.h - the axes of fwd_mma_sm80, what they make valid, and the sizes of shared memory.
#pragma once

#include "base_params.h"
#include "low_bits.h"

namespace attnforge {

struct FwdMmaSm80Config : Shape {
  int block_m;    // query rows a thread block; 8: the second half of its fragments is empty
  int num_warps;  // each has block_m / num_warps rows, a multiple of 16
  int block_n;    // keys in a tile of shared memory
  int step_n;     // keys in one softmax step; divides block_n
  int stages;     // tiles of K, and of V, in shared memory
  int q_in_regs;  // 0: Q is read from shared memory in every step; 1: once; 2: once, and K and V
                  // then take its memory
  int blocks_per_sm;  // resident blocks for which registers must suffice
  int pack_gqa;  // query heads of a K/V head in one query tile, as rows next to each other; 1: none
  int head_group_mb;   // heads are walked in groups of this many MB of K and V; 0: one head after
                       // another
  int head_dim_warps;  // 2: two warps share their rows, each has half of the head dims: of the sums
                       // of Q K^T and of the columns of O. 1: a warp has all of them
  int pad_head_dim;    // 1: head dims are padded to the next multiple of 16

  ATTNFORGE_CONSTEXPR int num_threads() const { return 32 * num_warps; }
  ATTNFORGE_CONSTEXPR bool low_bit_k() const { return is_low_bit(dtype_k); }
  ATTNFORGE_CONSTEXPR bool low_bit_v() const { return is_low_bit(dtype_v); }
  ATTNFORGE_CONSTEXPR bool low_bits() const { return low_bit_k() || low_bit_v(); }
  /// Warps that have rows of their own. Of V of 8 or 4 bits, whose output goes through shared
  /// memory in any case, the others have a part of a tile's keys.
  ATTNFORGE_CONSTEXPR int row_warps() const {
    const int least = block_m < 32 ? 1 : block_m / 16;
    return low_bit_v() && least < num_warps ? least : num_warps / head_dim_warps;
  }
  ATTNFORGE_CONSTEXPR int key_warps() const { return num_warps / head_dim_warps / row_warps(); }
  ATTNFORGE_CONSTEXPR int warp_m() const { return block_m / row_warps(); }
  ATTNFORGE_CONSTEXPR int row_fragments() const { return ceil_div(warp_m(), 16); }
  /// Rows of a lane in a fragment: 1 where the others would be empty.
  ATTNFORGE_CONSTEXPR int lane_rows() const { return warp_m() == 8 ? 1 : 2; }
  /// A head dim as products and shared memory see it.
  ATTNFORGE_CONSTEXPR int padded(int dim) const { return pad_head_dim ? round_up(dim, 16) : dim; }
  ATTNFORGE_CONSTEXPR static int columns_of_chunk(int code) {
    return 128 / element_bits(code_of(code));
  }
  // 16-byte chunks of a row that are in products, of Q and of K or V as they are: codes come by
  // whole chunks, and integers in K by 32.
  ATTNFORGE_CONSTEXPR int qk_chunks() const {
    const int unit = is_integer(dtype_k) ? 32 : 16;
    return chunks_of(dtype, round_up(padded(head_dim), unit * head_dim_warps));
  }
  /// Chunks of Q in an operand of the products with K. Integers in K take Q in two digits: with few
  /// rows those of both are in one.
  ATTNFORGE_CONSTEXPR int query_chunks() const {
    return is_integer(dtype_k) && lane_rows() == 1 ? 4 : 2;
  }
  ATTNFORGE_CONSTEXPR int k_chunks() const {
    return low_bit_k() ? qk_chunks() * element_bits(code_of(dtype_k)) / 16 : qk_chunks();
  }
  ATTNFORGE_CONSTEXPR int v_chunks() const {
    return low_bit_v() ? ceil_div(head_dim_v, columns_of_chunk(dtype_v))
                       : chunks_of(dtype, padded(head_dim_v));
  }
  // Chunks from row to row. Odd where warps have parts of a row: these may begin anywhere then.
  ATTNFORGE_CONSTEXPR int pitch_of(int chunks) const {
    return chunks + (head_dim_warps > 1 && chunks % 2 == 0 ? 1 : 0);
  }
  ATTNFORGE_CONSTEXPR int qk_pitch() const { return pitch_of(qk_chunks()); }
  ATTNFORGE_CONSTEXPR int k_pitch() const { return pitch_of(k_chunks()); }
  ATTNFORGE_CONSTEXPR int v_pitch() const { return pitch_of(v_chunks()); }
  // A warp's steps of 16 elements in the sums of Q K^T, and its fragments of 8 output columns.
  // Halves of an odd number of fragments overlap in one, which both warps compute, and store,
  // alike. Those of codes have 16 columns and 8 rows.
  ATTNFORGE_CONSTEXPR int depth_steps() const { return qk_chunks() / 2 / head_dim_warps; }
  ATTNFORGE_CONSTEXPR int out_fragments() const {
    if (low_bit_v()) return code_fragments() * lane_rows();
    return ceil_div(padded(head_dim_v) / 8, head_dim_warps);
  }
  ATTNFORGE_CONSTEXPR int code_fragments() const {
    return v_chunks() * columns_of_chunk(dtype_v) / 16;
  }
  ATTNFORGE_CONSTEXPR int offset_groups() const {
    return !is_integer(dtype_v) ? 0 : scales_of_rows(*this) ? row_scales(*this, head_dim_v) : 1;
  }
  /// Of a step, for offsets of integers: one a group, or one whose rows are groups.
  ATTNFORGE_CONSTEXPR int offset_fragments() const {
    return offset_groups() > 2 ? 1 : offset_groups();
  }
  // Of K and V of fewer bits: how many scales a row has, zero points among them, and their bytes in
  // a tile.
  ATTNFORGE_CONSTEXPR int k_row_scales() const {
    return low_bit_k() && scales_of_rows(*this) ? row_scale_floats(*this, head_dim) : 0;
  }
  ATTNFORGE_CONSTEXPR int v_row_scales() const {
    return low_bit_v() && scales_of_rows(*this) ? row_scale_floats(*this, head_dim_v) : 0;
  }
  /// Sums of a row of Q that K's zero points are multiplied by.
  ATTNFORGE_CONSTEXPR int k_row_zeros() const { return kv_zero ? k_row_scales() / 2 : 0; }
  ATTNFORGE_CONSTEXPR int k_code_bytes() const { return block_n * k_pitch() * 16; }
  ATTNFORGE_CONSTEXPR int v_code_bytes() const { return block_n * v_pitch() * 16; }
  ATTNFORGE_CONSTEXPR int scale_bytes(int scales) const {
    return round_up(scales * block_n * 4, 128);
  }
  ATTNFORGE_CONSTEXPR int q_bytes() const { return block_m * qk_pitch() * 16; }
  ATTNFORGE_CONSTEXPR int k_bytes() const { return k_code_bytes() + scale_bytes(k_row_scales()); }
  ATTNFORGE_CONSTEXPR int v_bytes() const { return v_code_bytes() + scale_bytes(v_row_scales()); }
  /// Bytes of a warp's part of the sums in a softmax step, for its partner.
  ATTNFORGE_CONSTEXPR int parts_bytes() const {
    return head_dim_warps > 1 ? warp_m() * step_n * 4 : 0;
  }
  // Of V of 8 or 4 bits: 8 rows of each warp's output on their way, at a pitch that spreads banks,
  // and what warps that share rows know of these.
  ATTNFORGE_CONSTEXPR int out_pitch() const { return code_fragments() * 16 + 4; }
  ATTNFORGE_CONSTEXPR int out_bytes() const {
    return low_bit_v() ? num_warps * (8 * out_pitch() * 4 + (key_warps() > 1 ? warp_m() * 8 : 0))
                       : 0;
  }
  // Q, then the K tiles, then the V tiles, then the warps' parts; each a multiple of 128 bytes.
  // Then, of K of 8 or 4 bits, a factor of each row of Q, and its sums.
  ATTNFORGE_CONSTEXPR int k_begin() const { return q_in_regs == 2 ? 0 : q_bytes(); }
  ATTNFORGE_CONSTEXPR int v_begin() const { return k_begin() + stages * k_bytes(); }
  ATTNFORGE_CONSTEXPR int parts_begin() const { return v_begin() + stages * v_bytes(); }
  ATTNFORGE_CONSTEXPR int factors_begin() const {
    const int end = parts_begin() + num_warps * parts_bytes();
    return end > q_bytes() ? end : q_bytes();
  }
  ATTNFORGE_CONSTEXPR int smem_bytes() const {
    const int end = factors_begin() + (low_bit_k() ? block_m * 4 * (1 + k_row_zeros()) : 0);
    return end > out_bytes() ? end : out_bytes();
  }
  ATTNFORGE_CONSTEXPR int key_groups() const { return key_groups_of(block_n); }
  /// Registers of a thread that the main loop keeps; ptxas finds some for the rest or spills.
  ATTNFORGE_CONSTEXPR int planned_registers() const {
    const int offsets = low_bit_v() ? offset_fragments() * lane_rows() : 0;
    const int output = row_fragments() * (out_fragments() + offsets) * 4;
    const int scores = row_fragments() * step_n / 2;
    const int query = q_in_regs ? row_fragments() * depth_steps() * 4 : row_fragments() * 4;
    const int widened = !low_bits() ? 0 : is_integer(dtype_k) ? 8 + 16 * row_fragments() : 8;
    const int partial = k_row_scales() > 1 + kv_zero ? scores : 0;  // sums of a group
    return output + scores + query + widened + partial + 4 * row_fragments() + 8;
  }
  /// What ptxas takes for a kernel of fewer bits, about: within 12 of it in most of 80 of one
  /// format. The digits of Q that integers in K take are half of what is planned.
  ATTNFORGE_CONSTEXPR int registers_taken() const {
    const bool digits = is_integer(dtype_k), all_rows = lane_rows() == 2;
    const int groups = k_row_scales() / (1 + kv_zero);
    int others = code_of(dtype_k) == kInt4 ? 20 : digits ? 34 : head_dim > 128 ? 66 : 52;
    if (all_rows) others += digits ? 2 + step_n : 4;
    if (groups > 1) others += groups == 2 ? -step_n / 8 : 10 * (groups - 2);
    if (all_rows && key_warps() == 1) others -= 14;
    if (q_in_regs != 0) others -= digits ? 2 * depth_steps() + 2 : all_rows ? 3 : 8;
    return planned_registers() + others < 255 ? planned_registers() + others : 255;
  }
  /// Blocks for which ptxas finds the registers. Tiles of few rows of fewer bits are small: an SM
  /// holds more of them than they ask for, which a few registers more must not prevent.
  ATTNFORGE_CONSTEXPR int resident_blocks() const {
    constexpr int kFewRows = 32, kSpared = 2;
    constexpr int kOfPartition = 16384 / 32, kPartitions = 4;  // registers of a lane
    constexpr int kMostSmem = 228 << 10, kReserved = 1 << 10;  // of an SM, and of a block
    if (!low_bits() || block_m > kFewRows) return blocks_per_sm;
    const int warps = kOfPartition / round_up(registers_taken() - kSpared, 8) * kPartitions;
    const int by_registers = warps / num_warps, by_smem = kMostSmem / (smem_bytes() + kReserved);
    const int held = by_registers < by_smem ? by_registers : by_smem;
    return held > blocks_per_sm ? held : blocks_per_sm;
  }
  ATTNFORGE_CONSTEXPR bool warps_valid() const {
    return (head_dim_warps == 1 || (head_dim_warps == 2 && step_n == block_n && !pad_head_dim)) &&
           num_warps % head_dim_warps == 0 && num_warps >= 2 &&
           (!low_bits() || (!pad_head_dim && head_dim_warps == 1)) &&
           (key_warps() == 1 || !has_key_lists());
  }
  ATTNFORGE_CONSTEXPR bool rows_valid() const {
    if (block_m % (16 * row_warps()) == 0) return true;
    return block_m == 8 && row_warps() == 1 && low_bit_k() && low_bit_v() && !has_key_lists() &&
           !user_score;
  }
  ATTNFORGE_CONSTEXPR bool keys_valid() const {
    return block_n % step_n == 0 && step_n % 16 == 0 && stages >= 1 &&
           (stages > 1 || step_n == block_n) && block_n / step_n % key_warps() == 0;
  }
  ATTNFORGE_CONSTEXPR bool lists_valid() const {
    if (!has_key_lists()) return true;
    const int of_group = block_n / key_groups();
    return pack_gqa == 1 && blocks_fit(block_n) && head_dim_warps == 1 &&
           (step_n % of_group == 0 || of_group % step_n == 0);
  }
  ATTNFORGE_CONSTEXPR bool valid() const {
    return (dtype == kFp16 || dtype == kBf16) && pack_gqa >= 1 && alignment >= 4 && warps_valid() &&
           rows_valid() && keys_valid() && lists_valid();
  }
};

struct FwdMmaSm80Params {
  FwdParams fwd;
  TileOrder order;  // a head is a K/V head when heads are packed
};

}  // namespace attnforge
