// transpose_v.cuh - a job on tiles of V of 8 bits: rows of keys become rows of columns, as wgmma
// takes 8 bits along k alone.
#pragma once

#include "hopper/workers.cuh"
#include "ptx/ldmatrix.cuh"
#include "ptx/special_registers.cuh"
#include "ptx/stmatrix.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// In the rows that it writes, 16 keys lie in the order 0, 1, 8, 9, 2, 3, 10, 11, 4, ...: that in
/// which a lane has probabilities of two fragments of scores, which so are a word of operand A.
template <auto C, class JobTile>
struct TransposeV {
  using From = TmaRows<C.swizzle, C.kv_chunk_bytes()>;
  using To = TmaRows<C.keys_swizzle(), C.keys_chunk_bytes()>;
  // A step is 32 keys of 16 columns: four matrices. Those of a batch are under way together.
  static constexpr int kKeySteps = C.block_n / 32;
  static constexpr int kBatch = gcd(kKeySteps, 4) > 1 ? gcd(kKeySteps, 4) : gcd(kKeySteps, 3);
  static constexpr int kKeyBatches = kKeySteps / kBatch;
  static constexpr bool kAnythingAfter = decltype(JobTile::queries.lengths)::kAnythingAfter;

  int present;  // rows of the tile before those after the sequence's last key, or more
  int warp, warps;

  ATTNFORGE_DEVICE TransposeV(const JobTile& of_keys, int number, int count)
      : present(of_keys.queries.lengths.kv() - of_keys.tile * C.block_n),
        warp(number),
        warps(count) {}

  ATTNFORGE_DEVICE void run(u32 from, u32 to) const {
    const int lane = thread_index() % 32;
#pragma unroll 1
    for (int item = warp; item < kKeyBatches * (C.head_dim_v / 16); item += warps) {
      const int column = item / kKeyBatches, first = item % kKeyBatches * kBatch;
      const u32 keys = from + From::offset(lane, column) + first * 32 * C.swizzle;
      // Two matrices of 16 keys, and two of the next 16.
      const u32 row = to + To::offset(column * 16 + row_of(lane % 8, lane / 8 % 2), lane / 16);
      u32 words[kBatch][4];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) ldmatrix_x4_trans(words[i], keys + i * 32 * C.swizzle);
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        transpose_pairs(words[i], lane);
        if constexpr (kAnythingAfter) clear(words[i], (first + i) * 32 + lane % 4 * 2);
        stmatrix_x4(To::further(row, 2 * (first + i)), words[i]);
      }
    }
  }

 private:
  /// The column that row i of a matrix of the first or second kind has: of even ones 0 to 6 and odd
  /// ones 9 to 15, or the others. Eight that lie in as many banks.
  ATTNFORGE_DEVICE static int row_of(int i, int second) { return 2 * i + (second ^ (i >> 2)); }
  /// Words of two keys with two neighbouring columns each become words of four keys of a column.
  ATTNFORGE_DEVICE static void transpose_pairs(u32 (&words)[4], int lane) {
    const u32 first = lane < 16 ? 0x6420 : 0x7531, second = first ^ 0x6420 ^ 0x7531;
#pragma unroll
    for (int w = 0; w < 4; w += 2) {
      const u32 low = words[w], high = words[w + 1];
      words[w] = __byte_perm(low, high, first);
      words[w + 1] = __byte_perm(low, high, second);
    }
  }
  /// Zeros in place of keys that are not there: their probabilities are 0, which is not enough
  /// where they are another sequence's NaN. `key`: the first of keys 0, 1, 8 and 9 of a word.
  ATTNFORGE_DEVICE void clear(u32 (&words)[4], int key) const {
    if (present >= C.block_n) return;
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int left = present - key - w / 2 * 16;
      const u32 low = left > 1 ? 0xffffu : left > 0 ? 0xffu : 0u;
      const u32 high = left > 9 ? 0xffff0000u : left > 8 ? 0xff0000u : 0u;
      words[w] &= low | high;
    }
  }
};

}  // namespace attnforge
