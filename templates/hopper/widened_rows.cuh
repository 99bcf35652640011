// widened_rows.cuh - the job of Hopper kernels whose K or V have 8 or 4 bits: rows as they arrived
// become rows of Q's format where products read them, and scales of rows come beside them.
#pragma once

#include "hopper/workers.cuh"
#include "ptx/convert.cuh"
#include "tile/swizzle.cuh"
#include "tile/unrolled.cuh"
#include "tile/widen.cuh"

namespace attnforge {

/// C is a family's config; kOfV: of V, else of K. Where rows have scales, the argument has a
/// ScaleParams `scales`.
template <class Tile, auto C, bool kOfV>
struct WidenedRows {
  static constexpr int kCode = kOfV ? C.dtype_v : C.dtype_k;
  static constexpr int kRowBytes = kOfV ? C.v_row_bytes() : C.k_row_bytes();
  static constexpr int kPieces = kRowBytes / 16;          // of a row, 16 bytes each
  static constexpr int kWide = 16 / element_bits(kCode);  // pieces of Q's format that one becomes
  static constexpr int kThreads = 96, kOwnRows = ceil_div(C.block_n, kThreads);
  static_assert(kRowBytes % 16 == 0, "supports() lets no other rows through");

  const int thread;  // of the workers
  float scales[kOwnRows];

  ATTNFORGE_DEVICE WidenedRows(const Tile& tile, int warp, int)
      : thread(warp * 32 + thread_index() % 32) {
    if constexpr (C.scales_of_rows())
      unrolled<kOwnRows>([&](int i) { scales[i] = scale_of(tile, thread + i * kThreads); });
  }

  /// That of the key in a row; 0 where there is none.
  ATTNFORGE_DEVICE static float scale_of(const Tile& tile, int row) {
    const auto& params = tile.queries.params;
    const auto& lengths = tile.queries.lengths;
    const TensorRef& of = kOfV ? params.scales.v : params.scales.k;
    const int key = tile.key(row);
    if (row >= C.block_n || key >= lengths.kv()) return 0.0f;
    i64 batch = lengths.batch(), at = lengths.kv_begin() + key;
    if constexpr (C.page_size != 0) {
      const auto& pages = params.pages;
      const u32 page = u32(
          pages.table[tile.queries.batch * pages.stride_batch + u32(key) / C.page_size]);
      batch = min(page, u32(pages.num_pages) - 1), at = u32(key) % C.page_size;
    }
    return static_cast<const float*>(of.data)[batch * of.stride_batch + at * of.stride_row +
                                              tile.queries.kv_head() * of.stride_head];
  }

  /// The numbers of a word, in their order.
  ATTNFORGE_DEVICE static void widen(u32 word, u32* to) {
    u32 pairs[Widen<kCode>::kPairs];
    Widen<kCode>::run(word, pairs);
    constexpr int kHalf = Widen<kCode>::kPairs / 2;
    unrolled<kHalf>([&](int i) {
      to[i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x5410);
      to[kHalf + i] = __byte_perm(pairs[2 * i], pairs[2 * i + 1], 0x7632);
    });
    if constexpr (C.dtype == kBf16)
      unrolled<2 * kHalf>([&](int i) {
        float low, high;
        unpack2<kFp16>(to[i], low, high);
        to[i] = pack2<kBf16>(low, high);
      });
  }

  ATTNFORGE_DEVICE void run(u32 from, u32 to) const {
#pragma unroll 2
    for (int i = thread; i < C.block_n * kPieces; i += kThreads) {
      const int row = i / kPieces, piece = i % kPieces;
      u32 words[4], wide[4 * kWide];
      load_shared_16(words, from + i * 16);
      unrolled<4>([&](int w) { widen(words[w], wide + w * kWide); });
      unrolled<kWide>([&](int c) {
        const u32 chunk[4] = {wide[4 * c], wide[4 * c + 1], wide[4 * c + 2], wide[4 * c + 3]};
        store_shared_16(to + TmaRows<C.swizzle, C.kv_chunk_bytes()>::offset(row, piece * kWide + c),
                        chunk);
      });
    }
    if constexpr (C.scales_of_rows())
      unrolled<kOwnRows>([&](int i) {
        const int row = thread + i * kThreads;
        const float scale[1] = {scales[i]};
        if (row < C.block_n) store_shared(from + C.block_n * kRowBytes + row * 4, scale);
      });
  }
};

}  // namespace attnforge
