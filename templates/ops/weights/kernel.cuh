// kernel.cuh - the weights exp(s - lse) that queries give to keys, from q, k and lse of a forward
// run: of some queries, or for each key the sum over all. No score leaves the registers.
#pragma once

#include "ops/weights/config.h"
#include "ops/weights/product.cuh"
#include "oracle/exact_mask.cuh"
#include "oracle/exact_score.cuh"
#include "parts/pages/params.h"
#include "ptx/mma_fragment.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// A block has a tile of keys, and one of rows or, of sums, all queries, one tile after another:
/// nobody else adds to its sums, so their order is always the same. Pieces: Lengths, and what
/// oracle/exact_mask.cuh asks.
template <WeightsConfig C, class Pieces, class ParamsType = WeightsParams>
struct Weights {
  using Params = ParamsType;
  using Lengths = typename Pieces::Lengths;
  using Product = TileProduct<C>;
  static constexpr int kFragments = Product::kFragments;

  const Params& params;
  const u32 smem;
  const int key_tiles, row_tiles, tile;  // tile: the number of the block's, keys first
  const int head, sequence, first_key;
  const Lengths lengths;
  const SeenRange seen;

  ATTNFORGE_DEVICE Weights(const Params& params, u32 smem)
      : params(params),
        smem(smem),
        key_tiles(ceil_div(params.fwd.seqlen_kv, C.kKeys)),
        row_tiles(C.sums ? 1 : ceil_div(params.num_rows, C.kRows)),
        tile(int(blockIdx.x) / key_tiles),
        head(tile / row_tiles % params.fwd.num_heads_q),
        sequence(tile / row_tiles / params.fwd.num_heads_q),
        first_key(int(blockIdx.x) % key_tiles * C.kKeys),
        lengths(params, sequence),
        seen(params.fwd, lengths) {}

  /// The query in a row of the output; -1: none.
  ATTNFORGE_DEVICE int query_of(int row) const {
    if (C.sums || params.rows == nullptr) return row < lengths.q() ? row : -1;
    if (row >= params.num_rows) return -1;
    const int listed = params.rows[row], query = listed < 0 ? listed + lengths.q() : listed;
    return query < lengths.q() ? query : -1;
  }
  ATTNFORGE_DEVICE bool is_key(int key) const {
    return key < min(lengths.kv(), params.fwd.seqlen_kv);
  }

  ATTNFORGE_DEVICE static const char* row_of(const TensorRef& tensor, i64 batch, int head,
                                             i64 row) {
    return head_pointer<C.dtype>(tensor, int(batch), head) +
           row * tensor.stride_row * element_bytes(C.dtype);
  }
  ATTNFORGE_DEVICE const char* query_row(int query) const {
    if (query < 0) return nullptr;
    return row_of(params.fwd.q, lengths.batch(), head, lengths.q_begin() + query);
  }
  ATTNFORGE_DEVICE const char* key_row(int key) const {
    if (!is_key(key)) return nullptr;
    const int kv_head = head / (params.fwd.num_heads_q / params.fwd.num_heads_kv);
    if constexpr (C.page_size != 0) {
      const PagesParams& pages = params.pages;
      const u32 entry = pages.table[sequence * pages.stride_batch + key / C.page_size];
      return row_of(params.fwd.k, min(entry, u32(pages.num_pages) - 1), kv_head, key % C.page_size);
    } else {
      return row_of(params.fwd.k, lengths.batch(), kv_head, lengths.kv_begin() + key);
    }
  }

  ATTNFORGE_DEVICE float lse_of(int query) const {
    const FwdParams& p = params.fwd;
    return p.lse[lengths.batch() * p.lse_stride_batch + head * p.lse_stride_head +
                 lengths.q_begin() + query];
  }

  /// Of a query and a key that is there, from their product.
  ATTNFORGE_DEVICE float weight(int query, int key, float lse, float product) const {
    const bool sees = key >= query + seen.from && key <= query + seen.to &&
                      exact_mask<C, Pieces>(params, lengths, sequence, head, query, key);
    if (!sees) return 0.0f;
    const float score = exact_score<C>(params, head, product).value;
    return expf(exact_text<C, Pieces>(params, lengths, sequence, head, query, key, score) - lse);
  }

  /// s becomes the weights of rows first_row and on; their products are summed up first.
  ATTNFORGE_DEVICE void weigh(int first_row, float (&s)[kFragments][4]) const {
#pragma unroll 1
    for (int column = 0; column < C.head_dim; column += Product::kColumns) {
      __syncthreads();  // the last use of shared memory is over
      Product::load(smem, column, [&](int row) { return query_row(query_of(first_row + row)); });
      Product::load(smem + Product::kKeysBegin, column,
                    [&](int row) { return key_row(first_key + row); });
      __syncthreads();
      Product::add(smem, s);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = query_of(first_row + own_row() + half * 8);
      const float lse = query < 0 ? negative_infinity() : lse_of(query);
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e) {
          const int key = own_key(f, e);
          const bool counts = lse != negative_infinity() && is_key(key);
          s[f][e] = counts ? weight(query, key, lse, s[f][e]) : 0.0f;
        }
    }
  }

  ATTNFORGE_DEVICE static int own_row() {
    return int(threadIdx.x) / 32 * 16 + MmaFragment::row(int(threadIdx.x) % 32);
  }
  ATTNFORGE_DEVICE int own_key(int fragment, int element) const {
    return first_key + fragment * 8 + MmaFragment::column(int(threadIdx.x) % 32) + element % 2;
  }
  ATTNFORGE_DEVICE float* output(int row) const {
    return params.to + sequence * params.stride_batch + head * params.stride_head +
           row * params.stride_row;
  }

  ATTNFORGE_DEVICE void write_rows() const {
    const int first_row = tile % row_tiles * C.kRows;
    float s[kFragments][4] = {};
    weigh(first_row, s);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first_row + own_row() + half * 8;
      if (row >= params.num_rows) continue;
      float* const to = output(row);
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int e = 2 * half; e < 2 * half + 2; ++e)
          if (own_key(f, e) < params.fwd.seqlen_kv) to[own_key(f, e)] = s[f][e];
    }
  }

  ATTNFORGE_DEVICE void write_sums() const {
    // Queries that may see one of the keys.
    const int first = max(0, first_key - seen.to) / C.kRows * C.kRows;
    const int end = min(lengths.q(), first_key + C.kKeys - seen.from);
    float sums[kFragments][2] = {};
#pragma unroll 1
    for (int row = first; row < end; row += C.kRows) {
      float s[kFragments][4] = {};
      weigh(row, s);
#pragma unroll
      for (int f = 0; f < kFragments; ++f)
#pragma unroll
        for (int e = 0; e < 2; ++e) sums[f][e] += s[f][e] + s[f][2 + e];
    }
    // ---- Those of a warp's rows, then those of all warps ----
    const int lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    __syncthreads();
#pragma unroll
    for (int f = 0; f < kFragments; ++f)
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        float x[1] = {sums[f][e]};
        x[0] += shuffle_xor<4>(x[0]);
        x[0] += shuffle_xor<8>(x[0]);
        x[0] += shuffle_xor<16>(x[0]);
        if (lane < 4) store_shared(smem + (warp * C.kKeys + own_key(f, e) - first_key) * 4, x);
      }
    __syncthreads();
    const int key = int(threadIdx.x);
    if (key >= C.kKeys || first_key + key >= params.fwd.seqlen_kv) return;
    float sum = 0.0f;
#pragma unroll
    for (int w = 0; w < C.kThreads / 32; ++w) {
      float x[1];
      load_shared(x, smem + (w * C.kKeys + key) * 4);
      sum += x[0];
    }
    output(0)[first_key + key] = sum;
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    extern __shared__ __align__(128) u8 shared_memory[];
    const Weights block(params, smem_address(shared_memory));
    if constexpr (C.sums)
      block.write_sums();
    else
      block.write_rows();
  }
};

}  // namespace attnforge
