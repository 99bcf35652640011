// whole_dargs.cuh - the gradient of an aligned array that a text adds to its score, where each pair
// has an element of its own: it is written, with zeros for pairs that nobody sees.
#pragma once

#include "backward/query_walk.cuh"
#include "backward/transposed_scores.cuh"
#include "parts/user_code/dargs.cuh"
#include "parts/user_code/row_cursor.cuh"
#include "ptx/convert.cuh"
#include "ptx/mbarrier.cuh"
#include "ptx/mma_fragment.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

template <class Code, class Row, class Before = PlainScore>
struct WholeDargs : DargsOfRows<Code, Row, Before> {
  using Base = DargsOfRows<Code, Row, Before>;

  /// dS of a tile, as Score takes transposed scores.
  template <int kFragments, class QueryTile>
  ATTNFORGE_DEVICE static void store_rows(const TransposedScores<float[kFragments][4]>& ds,
                                          const QueryTile& tile) {
    using T = typename Code::RowElement;
    const int rows = tile.lengths.q(), keys = tile.lengths.kv(), lane = ElementSum::lane();
    const int row_of_lane = MmaFragment::row(lane), column = MmaFragment::column(lane);
    // 1 of most texts, of whose rows nothing is left then.
    const auto scaled = [&](int j, int c, int r) {
      const int row = ds.first_row + 8 * j + column + c;
      const Row user(tile.params, tile.lengths, tile.batch, tile.query_head_of(row),
                     min(tile.query_of(row), rows - 1), ds.lane_key);
      OneRead read{0};
      return ds.all[j][2 * r + c] * slope_of_read<Code>(user, slopes::TanhWithSlope<QuotientTanh>(),
                                                        0.0f, user.template key<true>(8 * r), read);
    };
    unrolled<kFragments>([&](int j) {
      if constexpr (sizeof(T) == 2) {  // a lane's words are of two queries; of two keys in memory
        const int row = ds.first_row + 8 * j + row_of_lane,
                  key = ds.lane_key - row_of_lane + column;
        T* const to = Base::template place_in_gradient<T>(tile, row, key);
        unrolled<2>([&](int r) {
          constexpr int kDtype = kSame<T, Bf16> ? kBf16 : kFp16;
          const u32 word = movmatrix_trans(pack2<kDtype>(scaled(j, 0, r), scaled(j, 1, r)));
          if (row < rows && key + 8 * r < keys) *reinterpret_cast<u32*>(to + 8 * r) = word;
        });
      } else {
        unrolled<2>([&](int c) {
          const int row = ds.first_row + 8 * j + column + c;
          T* const to = Base::template place_in_gradient<T>(tile, row, ds.lane_key);
          unrolled<2>([&](int r) {
            if (row < rows && ds.lane_key + 8 * r < keys) to[8 * r] = scaled(j, c, r);
          });
        });
      }
    });
  }
  /// By kThreads, of kRows queries and kKeys keys whose dS lie in shared memory as elements of the
  /// array do, kRowBytes a row: eight of a row from address_of(row, piece) on, which xors a piece
  /// with row % 8. Zeros up to a multiple of 16 bytes.
  template <int kRows, int kKeys, int kThreads, int kRowBytes, class QueryTile, class AddressOf>
  ATTNFORGE_DEVICE static void store_tile(const QueryTile& tile, int first_row, int first_key,
                                          int thread, const AddressOf& address_of) {
    using T = typename Code::RowElement;
    constexpr int kPieces = kKeys / 8, kAtOnce = kThreads / kPieces;
    constexpr int kPhases = kAtOnce < 8 ? 8 / kAtOnce : 1, kStep = kAtOnce * kPhases;
    const int piece = thread % kPieces, begin = thread / kPieces;
    const int key = first_key + 8 * piece, present = tile.lengths.kv() - key;
    const int rows = present > 0 ? tile.lengths.q() - first_row : 0;
    u32 from[kPhases];
    unrolled<kPhases>([&](int i) { from[i] = address_of(begin + i * kAtOnce, piece); });
    RowCursor<Code, kAtOnce> to(tile, first_row + begin, key);
    const i64 gradient = distance_of_gradient(tile, first_row + begin, key, to.at);
#pragma unroll 1
    for (int row = begin; row < kRows; row += kStep) {
      u32 words[kPhases][4];
      unrolled<kPhases>([&](int i) { load_shared_16(words[i], from[i]); });
      unrolled<kPhases>([&](int i) {
        from[i] += kStep * kRowBytes;
        const int at = row + i * kAtOnce;
        if (present < 8) {
          int there = present;
          asm volatile("" : "+r"(there));  // in the loop: masks would take registers in it
          unrolled<4>([&](int w) {
            words[i][w] &= there > 2 * w + 1 ? ~0u : there > 2 * w ? 0xffffu : 0u;
          });
        }
        if (at < rows)
          *gradient_at(to.at, gradient) = make_uint4(words[i][0], words[i][1], words[i][2],
                                                     words[i][3]);
        to.advance(tile, first_row + at, key);
      });
    }
  }
  /// Whether dS of this dtype are the elements of the gradient.
  template <int kDtype>
  static constexpr bool kStoresTiles = Code::kAddsElement &&
                                       (kSame<typename Code::RowElement, Bf16>
                                            ? kDtype == kBf16
                                            : kSame<typename Code::RowElement, Fp16> &&
                                                  kDtype == kFp16);
  /// Zeros for rows first_row to end_row - 1 and kKeys keys from first_key on, by kThreads.
  template <int kKeys, int kThreads, class QueryTile>
  ATTNFORGE_DEVICE static void clear_rows(const QueryTile& tile, int first_row, int end_row,
                                          int first_key, int thread) {
    using T = typename Code::RowElement;
    constexpr int kOfPiece = 16 / sizeof(T), kPieces = kKeys / kOfPiece;
    constexpr int kAtOnce = kThreads / kPieces;
    const int key = first_key + thread % kPieces * kOfPiece, end = min(end_row, tile.lengths.q());
    int row = first_row + thread / kPieces;
    if (key >= tile.lengths.kv() || row >= end) return;
    RowCursor<Code, kAtOnce> to(tile, row, key);
    const i64 gradient = distance_of_gradient(tile, row, key, to.at);
#pragma unroll 4
    for (; row < end; row += kAtOnce) {
      *gradient_at(to.at, gradient) = make_uint4(0, 0, 0, 0);
      to.advance(tile, row, key);
    }
  }
  ATTNFORGE_DEVICE static uint4* gradient_at(const typename Code::RowElement* element,
                                             i64 gradient) {
    using T = typename Code::RowElement;
    return reinterpret_cast<uint4*>(reinterpret_cast<char*>(const_cast<T*>(element)) + gradient);
  }
  /// From an element to its gradient, in bytes.
  template <class QueryTile>
  ATTNFORGE_DEVICE static i64 distance_of_gradient(const QueryTile& tile, int row, int key,
                                                   const typename Code::RowElement* element) {
    using T = typename Code::RowElement;
    return i64(reinterpret_cast<u64>(Base::template place_in_gradient<T>(tile, row, key)) -
               reinterpret_cast<u64>(element));
  }

  // ---- C is the config of a kernel, `work` a key tile of a block ----

  /// By warps that compute, before their tiles: zeros for query tiles that the walk leaves out.
  template <auto C, class Work>
  ATTNFORGE_DEVICE static void clear_unseen(const Work& work, int thread) {
    for (int head = work.first_head; head < work.end_head; ++head) {
      const auto clear = [&](int first_row, int end_row) {
        clear_rows<C.block_n(), 128 * C.warpgroups>(work.keys.queries_of(head), first_row, end_row,
                                                    work.keys.first_key, thread);
      };
      clear(0, work.walk.begin * C.block_m);
      clear(work.walk.end * C.block_m, work.keys.lengths.q());
    }
  }
  /// By so many threads that do not compute: dS of each query tile.
  static constexpr int kStoring = 64;
  template <auto C, class Shared, class Work>
  ATTNFORGE_DEVICE static void store_all(const Shared& smem, const Work& work, int thread) {
    u32 count = 0;
    work.for_each([&](const QueryPlace& place) {
      const u32 stage = count % C.ds_stages;
      mbarrier_wait(smem.ds_full(stage), count / C.ds_stages % 2);
      const u32 ds = smem.ds(stage);
      store_tile<C.block_m, C.block_n(), kStoring, C.kSwizzle>(
          work.keys.queries_of(place.head), place.m * C.block_m, work.keys.first_key, thread,
          [&](int row, int piece) {
            return ds + piece / 8 * C.row_chunk_bytes() + row * C.kSwizzle +
                   (piece % 8 ^ row % 8) * 16;
          });
      mbarrier_arrive(smem.ds_empty(stage));
      ++count;
    });
  }
};

}  // namespace attnforge
