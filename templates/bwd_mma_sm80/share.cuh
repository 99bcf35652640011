// share.cuh - where a block of bwd_mma_sm80 has its tiles, and what of its work a warp has: keys,
// and with several roles one of their gradients, or half of its columns.
#pragma once

#include "bwd_mma_sm80/config.h"
#include "ptx/mma_sync.cuh"
#include "ptx/special_registers.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// Shared memory of a block, as 32-bit addresses.
template <BwdMmaSm80Config C>
struct BwdMmaSm80Shared {
  using QkRows = SwizzledRows<C.qk_chunks()>;
  using VRows = SwizzledRows<C.v_chunks()>;
  using DsRows = SwizzledRows<chunks_of(C.dtype, C.block_m)>;  // a row is a key

  u32 base;

  // Numbers that cannot be negative, as the compiler sees: else each division corrects the sign
  // first.
  ATTNFORGE_DEVICE static int lane() { return thread_index() & 31; }
  ATTNFORGE_DEVICE static int warp() { return static_cast<u32>(thread_index()) / 32; }

  ATTNFORGE_DEVICE u32 k() const { return base; }
  ATTNFORGE_DEVICE u32 v() const { return base + C.v_begin(); }
  ATTNFORGE_DEVICE u32 q(int stage) const { return base + C.q_begin() + stage * C.q_bytes(); }
  ATTNFORGE_DEVICE u32 dout(int stage) const {
    return base + C.dout_begin() + stage * C.dout_bytes();
  }
  ATTNFORGE_DEVICE u32 ds(int stage) const { return base + C.ds_begin() + stage * C.ds_bytes(); }
  ATTNFORGE_DEVICE u32 p() const { return base + C.p_begin(); }
  ATTNFORGE_DEVICE u32 beside_ds() const { return base + C.beside_ds_begin(); }
  /// lse_log2 of the rows of a tile; delta follows.
  ATTNFORGE_DEVICE u32 rows(int stage) const {
    return base + C.rows_begin() + stage * C.rows_bytes();
  }

  // This lane's part of the first operand fragments in a tile: with rows as they lie ...
  template <class Rows>
  ATTNFORGE_DEVICE static u32 query_rows(u32 tile) {
    return tile + Rows::offset(lane() % 8 + lane() / 16 * 8, lane() / 8 % 2);
  }
  // ... and transposed.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 query_columns(u32 tile) {
    return tile + Rows::offset(lane() % 16, lane() / 16);
  }
};

template <BwdMmaSm80Config C>
struct BwdMmaSm80Share {
  using Shared = BwdMmaSm80Shared<C>;

  static constexpr int kKeyFragments = C.key_fragments();  // of 16 keys, a warp
  static constexpr int kStepFragments = C.warp_m() / 8;    // of 8 queries, a step
  static constexpr int kKColumns = C.head_dim / 8, kVColumns = C.head_dim_v / 8;        // fragments
  static constexpr int kOwnK = kKColumns / C.halves(), kOwnV = kVColumns / C.halves();  // a warp
  static constexpr int kMostColumns = kOwnK > kOwnV ? kOwnK : kOwnV;
  static constexpr int kKDepth = C.qk_chunks() / 2, kVDepth = C.v_chunks() / 2;  // of 16 elements
  static constexpr int kOwnDepth = C.roles != 1 && kVDepth > kKDepth ? kVDepth : kKDepth;

  // What a step has, in fragments of 16 keys by 8 queries: scores or dP; and rounded to 16 bits,
  // two queries a word, which are operands of the next product as they are.
  using Scores = float[kKeyFragments][kStepFragments][4];
  using Rounded = u32[kKeyFragments][kStepFragments][2];
  using Sums = float[kKeyFragments][kMostColumns][4];
  using Own = u32[C.keys_in_regs ? kOwnDepth : 1][kKeyFragments][4];  // rows of K or V as operands

  ATTNFORGE_DEVICE static int lane() { return Shared::lane(); }
  ATTNFORGE_DEVICE static int warp() { return Shared::warp(); }
  /// With several roles the first half of the warps has dV, the second dK.
  ATTNFORGE_DEVICE static int key_warp() { return C.roles == 1 ? warp() : warp() % C.key_warps(); }
  ATTNFORGE_DEVICE static bool has_dv() { return C.roles == 1 || warp() < C.num_warps / 2; }
  /// Which half of a step's scores, and of each 64 columns, this warp has.
  ATTNFORGE_DEVICE static int half() {
    return C.halves() == 1 ? 0 : warp() / C.key_warps() % C.halves();
  }
  /// Its first query in a tile, in a step; and the first fragment of its columns from c on.
  ATTNFORGE_DEVICE static int first_query(int step) {
    return step * C.step_m + half() * C.warp_m();
  }
  ATTNFORGE_DEVICE static constexpr int column_fragment(int c) {
    return C.halves() == 1 ? c : c / 4 * 8 + c % 4;
  }
  /// First key of this warp in the block's, and that of this lane's accumulator c[0].
  ATTNFORGE_DEVICE static int warp_key() { return key_warp() * C.warp_n(); }
  ATTNFORGE_DEVICE static int lane_key() { return warp_key() + MmaFragment::row(lane()); }

  /// This lane's part of the first operand fragments of this warp's keys.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 own_rows(u32 tile) {
    return tile + Rows::offset(warp_key() + lane() % 16, lane() / 16);
  }
  /// That of this warp's columns in rows of queries.
  template <class Rows>
  ATTNFORGE_DEVICE static u32 own_columns(u32 rows) {
    return Rows::further(Shared::template query_columns<Rows>(rows), half() * 4);
  }
};

}  // namespace attnforge
