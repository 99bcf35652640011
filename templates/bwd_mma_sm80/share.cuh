// share.cuh - what of a block's work a warp of bwd_mma_sm80 has: keys, and with several roles one
// of their gradients, or half of its columns.
#pragma once

#include "base.cuh"
#include "bwd_mma_sm80/config.h"
#include "bwd_mma_sm80/shared.cuh"
#include "ptx/mma_sync.cuh"

namespace attnforge {

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
