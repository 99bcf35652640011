// block_loader.cuh - the loader of keys in ggml's blocks: numbers of 8 or 4 bits go to a tile as
// rows of kInt8 or kInt4 do, and their scales after it, as those of groups of 32 columns in fp32.
// Blocks are aligned to 2 bytes, which cp.async cannot take, so words pass through registers.
#pragma once

#include "low_bits.h"
#include "ptx/shared_memory.cuh"
#include "tile/elements.cuh"
#include "tile/swizzle.cuh"

namespace attnforge {

/// As TileLoader has it, of rows of kColumns of kDtype. Scales of a row lie one after another,
/// kScalesBegin bytes after the tile.
template <int kDtype, int kRows, int kColumns, int kChunks, int kThreads, int kScalesBegin>
struct BlockLoader {
  using Layout = SwizzledRows<kChunks>;
  static constexpr int kTileRows = kRows;
  static constexpr int kBlocks = kColumns / 32, kBlockBytes = kDtype == kQ8_0 ? 34 : 18;
  static constexpr int kChunksOfBlock = kDtype == kQ8_0 ? 2 : 1;
  static constexpr int kDataChunks = kBlocks * kChunksOfBlock;
  static_assert(kColumns % 32 == 0 && kDataChunks <= kChunks, "rows are of whole blocks");
  /// Enough that a pass has no more rows than a tile.
  ATTNFORGE_CONSTEXPR static int lanes_of_row() {
    int lanes = 1;
    while ((lanes < 8 && lanes < kDataChunks) || lanes * kRows < kThreads) lanes *= 2;
    return lanes;
  }
  static constexpr int kLanesPerRow = lanes_of_row(), kRowsPerPass = kThreads / kLanesPerRow;

  int row, first_chunk;
  static constexpr int chunk = 0;  // rows are asked for as they begin

  ATTNFORGE_DEVICE explicit BlockLoader(int thread)
      : row(thread / kLanesPerRow), first_chunk(thread % kLanesPerRow) {}

  /// All lanes of a warp ask where a row lies.
  template <bool kBounded, class Source>
  ATTNFORGE_DEVICE void load(u32 tile, const Source& source, int rows_present) const {
#pragma unroll
    for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
      const int at = row + pass * kRowsPerPass;
      const char* const from = source(pass);
      if (kRows % kRowsPerPass != 0 && at >= kRows) continue;
      const bool present = !kBounded || at < rows_present;
#pragma unroll
      for (int c = 0; c < kDataChunks; c += kLanesPerRow) {
        const int which = first_chunk + c;
        if (c + kLanesPerRow > kDataChunks && which >= kDataChunks) continue;
        const char* const block = from + which / kChunksOfBlock * kBlockBytes;
        u32 words[4] = {0, 0, 0, 0};
        if (present) load_words<2>(block + 2 + which % kChunksOfBlock * 16, words);
        if constexpr (kDtype == kQ4_0) to_pairs(words);
        store_shared_16(tile + Layout::offset(at, which), {words[0], words[1], words[2], words[3]});
        if (which % kChunksOfBlock != 0) continue;
        float scale, none;
        unpack2<kFp16>(present ? *reinterpret_cast<const u16*>(block) : 0u, scale, none);
        store_shared(tile + kScalesBegin + (at * kBlocks + which / kChunksOfBlock) * 4,
                     __float_as_int(scale));
      }
    }
  }
  /// There is none.
  ATTNFORGE_DEVICE static void clear_padding(u32, int) {}

  /// Bytes of numbers i and i + 16, from -8 on, become those of 2 i and 2 i + 1, in two's
  /// complement.
  ATTNFORGE_DEVICE static void to_pairs(u32 (&words)[4]) {
    const auto paired = [](u32 a, u32 b) {  // of the low halves of 8 bytes
      a &= 0x0f0f0f0fu, b &= 0x0f0f0f0fu;
      return __byte_perm(a | a >> 4, b | b >> 4, 0x6420) ^ 0x88888888u;
    };
    const u32 lower[2] = {paired(words[0], words[1]), paired(words[2], words[3])};
    const u32 upper[2] = {paired(words[0] >> 4, words[1] >> 4),
                          paired(words[2] >> 4, words[3] >> 4)};
    unrolled<2>([&](int i) { words[i] = lower[i], words[2 + i] = upper[i]; });
  }
};

}  // namespace attnforge
