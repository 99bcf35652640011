// scaled_keys.cuh - Keys of K or V whose rows have scales: these are copied beside the rows.
#pragma once

#include "base_params.h"
#include "ptx/cp_async.cuh"
#include "ptx/special_registers.cuh"
#include "tile/load_tile.cuh"

namespace attnforge {

/// The loader of the scales of a tile of kRows keys: [kRows][kScales] floats, of which a copy takes
/// as many as divide kScales.
template <int kRows, int kScales, int kThreads>
struct ScaleLoader {
  static constexpr int kTileRows = kRows;
  static constexpr int kRowsPerPass = kThreads < kRows ? kThreads : kRows;
  static constexpr int kCopied = gcd(kScales, 4);

  int row;
  static constexpr int chunk = 0;

  ATTNFORGE_DEVICE explicit ScaleLoader(int thread) : row(int(u32(thread) % kRowsPerPass)) {}

  /// As TileLoader has it. All lanes of a warp ask where a row lies.
  template <bool kBounded, class Source>
  ATTNFORGE_DEVICE void load(u32 tile, const Source& source, int rows_present) const {
    const bool copies = kThreads <= kRows || thread_index() < kRowsPerPass;
#pragma unroll
    for (int pass = 0; pass < ceil_div(kRows, kRowsPerPass); ++pass) {
      const int at = row + pass * kRowsPerPass;
      const char* from = source(pass);
      if (!copies || (kRows % kRowsPerPass != 0 && at >= kRows)) continue;
#pragma unroll
      for (int s = 0; s < kScales; s += kCopied) {
        const u32 to = tile + (at * kScales + s) * 4;
        if constexpr (kBounded)
          cp_async_or_zero<4 * kCopied>(to, from + s * 4, at < rows_present);
        else
          cp_async<4 * kCopied>(to, from + s * 4);
      }
    }
  }
};

/// Rows are those of Codes; scales, kBegin bytes after where they are copied to, those of Scales:
/// Keys of fp32. kOfV: of V, else of K. The argument has a ScaleParams `scales`.
template <class Codes, class Scales, class ScaleLoader, int kBegin, bool kOfV>
struct ScaledKeys : Codes {
  Scales scales;

  template <class QueryTile, class Walk, class Loader>
  ATTNFORGE_DEVICE ScaledKeys(const TensorRef& keys, const QueryTile& tile, int kv_head,
                              const Walk& walk, const Loader& loader)
      : Codes(keys, tile, kv_head, walk, loader),
        scales(kOfV ? tile.params.scales.v : tile.params.scales.k, tile, kv_head, walk,
               ScaleLoader(thread_index())) {}

  template <bool kFirst, class Walk, class Loader>
  ATTNFORGE_DEVICE void load(const Walk& walk, int place, const Loader& loader, u32 to,
                             int seqlen_kv) {
    Codes::template load<kFirst>(walk, place, loader, to, seqlen_kv);
    scales.share(static_cast<const Codes&>(*this));
    scales.template load<kFirst>(walk, place, ScaleLoader(thread_index()), to + kBegin, seqlen_kv);
  }
};

}  // namespace attnforge
