// shared.cuh - where a block of bwd_mma_sm80 has its tiles, and a lane its part of operands in
// them.
#pragma once

#include "base.cuh"
#include "bwd_mma_sm80/config.h"
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

}  // namespace attnforge
