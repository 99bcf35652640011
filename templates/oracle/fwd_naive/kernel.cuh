// kernel.cuh - attention forward as it is written in textbooks, in fp32: one pass over the keys for
// the exact maximum of each row, one for the exponentials and the output. The oracle of other
// kernels on the GPU, so it stays simple.
#pragma once

#include "oracle/exact_elements.cuh"
#include "oracle/exact_mask.cuh"
#include "oracle/exact_score.cuh"
#include "oracle/fwd_naive/config.h"
#include "parts/pages/params.h"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/maximum.cuh"

namespace attnforge {

/// Pieces: only Lengths is used, and what oracle/exact_mask.cuh asks. ParamsType is the
/// kernel's argument: FwdNaiveParams, or what an entry derives from it.
template <FwdNaiveConfig C, class Pieces, class ParamsType = FwdNaiveParams>
struct FwdNaive {
  using Params = ParamsType;
  using Lengths = typename Pieces::Lengths;
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  static constexpr int kRows = C.block_m;

  struct SharedMemory {
    float q[kRows][C.head_dim];     // 16-byte aligned rows: head_dim is a multiple of 8
    float p[C.num_threads][kRows];  // probabilities of a tile of keys; at the end, partial outputs
                                    // of the key groups
    float reduction[C.num_warps()][kRows];
    float row_max[kRows];
  };

  /// The rows of a thread block: row r is query `query[r]` of the sequence.
  struct Rows {
    int head, sequence;
    int first, end;  // row r is one if first + r < end
    Lengths lengths;
    int query[kRows];

    ATTNFORGE_DEVICE explicit Rows(const Params& params)
        : head(int(blockIdx.x / row_blocks(params) % params.fwd.num_heads_q)),
          sequence(sequence_of(params)),
          first(int(blockIdx.x % row_blocks(params)) * kRows),
          lengths(params, sequence) {
      end = listed(params) ? params.num_rows : lengths.q();
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        query[r] = listed(params) ? params.rows[min(first + r, end - 1)].query : first + r;
    }
    ATTNFORGE_DEVICE static bool listed(const Params& params) { return params.rows != nullptr; }
    ATTNFORGE_DEVICE static int row_blocks(const Params& params) {
      return ceil_div(listed(params) ? params.num_rows : params.fwd.seqlen_q, kRows);
    }
    ATTNFORGE_DEVICE static int sequence_of(const Params& params) {
      if (listed(params)) return params.rows[int(blockIdx.x % row_blocks(params)) * kRows].batch;
      return int(blockIdx.x / row_blocks(params) / params.fwd.num_heads_q);
    }
    ATTNFORGE_DEVICE bool present(int r) const { return first + r < end; }
    // Where the outputs of row r go.
    ATTNFORGE_DEVICE int batch_out(const Params& params) const {
      return listed(params) ? 0 : lengths.batch();
    }
    ATTNFORGE_DEVICE int row_out(const Params& params, int r) const {
      return first + r + (listed(params) ? 0 : lengths.q_begin());
    }
  };

  struct Maximum {
    ATTNFORGE_DEVICE static float identity() { return negative_infinity(); }
    ATTNFORGE_DEVICE static float combine(float a, float b) { return fmaxf(a, b); }
  };
  struct Sum {
    ATTNFORGE_DEVICE static float identity() { return 0.0f; }
    ATTNFORGE_DEVICE static float combine(float a, float b) { return a + b; }
  };

  /// Each row's values of all threads combined, given back to all of them.
  template <class Operation>
  ATTNFORGE_DEVICE static void reduce(float (&values)[kRows], SharedMemory& smem) {
    __syncthreads();  // the last use of smem.reduction is over
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int distance = 16; distance > 0; distance /= 2)
        values[r] = Operation::combine(values[r],
                                       __shfl_xor_sync(0xffffffffu, values[r], distance));
      if (threadIdx.x % 32 == 0) smem.reduction[threadIdx.x / 32][r] = values[r];
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      values[r] = Operation::identity();
      for (int w = 0; w < C.num_warps(); ++w)
        values[r] = Operation::combine(values[r], smem.reduction[w][r]);
    }
  }

  /// Scores of the block's rows with one key: scaled, capped, and after the user's text.
  ATTNFORGE_DEVICE static void scores(const Params& params, const SharedMemory& smem,
                                      const Rows& rows, const char* key_row, int key,
                                      float (&s)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) s[r] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < C.head_dim; d += 8) {
      float k[8];
      if constexpr (is_low_bit(C.dtype_k)) {
#pragma unroll
        for (int i = 0; i < 8; ++i)
          k[i] = value_of<false>(params, rows, key, d + i,
                                 exact_element<C.dtype_k>(key_row, d + i));
      } else {
        load_floats<C.dtype_k, C.alignment>(key_row + d * element_bytes(C.dtype_k), k);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) k[i] = exact_element_of_key<C>(params, key, key_row, d + i, k[i]);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < 8; ++i) s[r] += smem.q[r][d + i] * k[i];
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      s[r] = exact_text<C, Pieces>(params, rows.lengths, rows.sequence, rows.head, rows.query[r],
                                   key, exact_score<C>(params, rows.head, s[r]).value);
    }
  }

  /// The probability of a score, before the division by their sum.
  ATTNFORGE_DEVICE static float probability(float score, float row_max) {
    constexpr float kLog2e = 1.4426950408889634f;
    return exp2f((score - fmaxf(row_max, kLowestFloat)) * kLog2e);  // -inf - -inf would be NaN
  }

  /// Where row 0 of the sequence is in a tensor of queries or of keys.
  template <int kDtype>
  ATTNFORGE_DEVICE static char* sequence_pointer(const TensorRef& tensor, const Lengths& lengths,
                                                 int head, int begin) {
    char* const first = head_pointer<kDtype>(tensor, lengths.batch(), head);
    if constexpr (is_low_bit(kDtype)) return first + bytes_of(kDtype, begin * tensor.stride_row);
    return first + begin * tensor.stride_row * element_bytes(kDtype);
  }

  /// The value of element d of a key, of its number.
  template <bool kOfV>
  ATTNFORGE_DEVICE static float value_of(const Params& params, const Rows& rows, int key, int d,
                                         float number) {
    const int head = rows.head / (params.fwd.num_heads_q / params.fwd.num_heads_kv);
    i64 batch = rows.lengths.batch(), row = rows.lengths.kv_begin() + key;
    if constexpr (C.page_size != 0) batch = page_of(params, rows, key), row = key % C.page_size;
    return exact_value<C, kOfV>(params, rows.sequence, batch, row, head, d, number);
  }

  ATTNFORGE_DEVICE static i64 page_of(const Params& params, const Rows& rows, int key) {
    const PagesParams& pages = params.pages;
    const u32 entry = pages.table[rows.sequence * pages.stride_batch + key / C.page_size];
    return min(entry, u32(pages.num_pages) - 1);
  }

  /// Row `key` of a head's keys, `head` on, which is the sequence's row 0 or, where keys lie in
  /// pages, row 0 of page 0. Nothing faults where a table is wrong.
  template <int kDtype>
  ATTNFORGE_DEVICE static const char* key_row(const Params& params, const TensorRef& tensor,
                                              const Rows& rows, const char* head, int key) {
    if constexpr (C.page_size != 0) {
      return head + bytes_of(kDtype, page_of(params, rows, key) * tensor.stride_batch +
                                         key % C.page_size * tensor.stride_row);
    } else if constexpr (is_low_bit(kDtype)) {
      return head + bytes_of(kDtype, key * tensor.stride_row);
    } else {
      return head + key * tensor.stride_row * element_bytes(kDtype);
    }
  }

  /// Query rows to shared memory; those past the end are 0.
  ATTNFORGE_DEVICE static void load_queries(const Params& params, const Rows& rows,
                                            SharedMemory& smem) {
    const TensorRef& q = params.fwd.q;
    const char* head = sequence_pointer<C.dtype>(q, rows.lengths, rows.head,
                                                 rows.lengths.q_begin());
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const char* row = head + rows.query[r] * q.stride_row * element_bytes(C.dtype);
      for (int d = threadIdx.x; d < C.head_dim; d += C.num_threads) {
        float x = 0.0f;
        if (rows.present(r)) {
          x = exact_element<C.dtype>(row, d);
          if constexpr (is_low_bit(C.dtype))
            x *= exact_scale_of_query<C>(params, rows.lengths, rows.sequence, rows.head,
                                         rows.query[r]);
          x = exact_element_of_query<C>(params, rows.query[r], row, d, x);
        }
        smem.q[r][d] = x;
      }
    }
    __syncthreads();
  }

  /// Which keys the block's rows see.
  struct Seen {
    const Params& params;
    const Rows& rows;
    SeenRange range;
    ExactBlocks<C, kRows> present;
    int begin, end;  // of all rows

    ATTNFORGE_DEVICE Seen(const Params& params, const Rows& rows)
        : params(params),
          rows(rows),
          range(params.fwd, rows.lengths),
          present(params, rows.sequence, rows.head, rows.query) {
      int lowest = rows.query[0], highest = rows.query[0];
#pragma unroll
      for (int r = 1; r < kRows; ++r) {
        lowest = min(lowest, rows.query[r]);
        highest = max(highest, rows.query[r]);
      }
      begin = max(lowest + range.from, 0);
      end = min(highest + range.to + 1, rows.lengths.kv());
    }
    ATTNFORGE_DEVICE bool operator()(int r, int key) const {
      if (key < rows.query[r] + range.from || key > rows.query[r] + range.to) return false;
      return exact_mask<C, Pieces>(present(r, key), params, rows.lengths, rows.sequence, rows.head,
                                   rows.query[r], key);
    }
  };

  /// The first row of keys, or of values, of the block's sequence; of page 0 where they lie in
  /// pages.
  template <int kDtype>
  ATTNFORGE_DEVICE static const char* first_row(const TensorRef& tensor, const Rows& rows,
                                                int kv_head) {
    if constexpr (C.page_size != 0) return head_pointer<kDtype>(tensor, 0, kv_head);
    return sequence_pointer<kDtype>(tensor, rows.lengths, kv_head, rows.lengths.kv_begin());
  }

  /// The rows' maxima, to shared memory: not in registers through the next loop.
  ATTNFORGE_DEVICE static void find_maxima(const Params& params, const Rows& rows, const Seen& sees,
                                           const char* k_head, SharedMemory& smem) {
    const int thread = threadIdx.x;
    float row_max[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) row_max[r] = negative_infinity();
    for (int key = sees.begin + thread; key < sees.end; key += C.num_threads) {
      if (!sees.present.any(key)) continue;
      float s[kRows];
      scores(params, smem, rows, key_row<C.dtype_k>(params, params.fwd.k, rows, k_head, key), key,
             s);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        if (sees(r, key)) row_max[r] = fmaxf(row_max[r], s[r]);
    }
    reduce<Maximum>(row_max, smem);
    if constexpr (kHasSink<C>) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) row_max[r] = fmaxf(row_max[r], exact_sink(params, rows.head));
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (thread == r) smem.row_max[r] = row_max[r];
    __syncthreads();
  }

  // A thread's columns of the output, and its keys of a tile in the products of these.
  static constexpr int kColumns = C.columns_per_thread();
  ATTNFORGE_DEVICE static int group() { return int(threadIdx.x) / C.threads_per_group(); }
  ATTNFORGE_DEVICE static int column() { return int(threadIdx.x) % C.threads_per_group(); }

  /// Adds the products of a tile's probabilities, of keys from `tile` on, with V.
  ATTNFORGE_DEVICE static void add_products(const Params& params, const Rows& rows,
                                            const char* v_head, int tile, int tile_keys,
                                            const SharedMemory& smem, float (&o)[kColumns][kRows]) {
    const TensorRef& tensor = params.fwd.v;
    // The thread's column, but of fewer bits, which lie in no byte of their own.
    const int first = is_low_bit(C.dtype_v) ? column() : 0;
    const char* v_column = v_head +
                           (tile * tensor.stride_row + column()) * element_bytes(C.dtype_v);
#pragma unroll 2
    for (int i = group(); i < tile_keys; i += C.key_groups()) {
      const char* v_row = v_column + i * tensor.stride_row * element_bytes(C.dtype_v);
      if constexpr (C.page_size != 0)
        v_row = key_row<C.dtype_v>(params, tensor, rows, v_head, tile + i) +
                column() * element_bytes(C.dtype_v);
      if constexpr (is_low_bit(C.dtype_v))
        v_row = key_row<C.dtype_v>(params, tensor, rows, v_head, tile + i);
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = c * C.threads_per_group();
        if (column() + d >= C.head_dim_v) break;
        float v = exact_element<C.dtype_v>(v_row, first + d);
        if constexpr (is_low_bit(C.dtype_v))
          v = value_of<true>(params, rows, tile + i, column() + d, v);
#pragma unroll
        for (int r = 0; r < kRows; ++r) o[c][r] += smem.p[i][r] * v;
      }
    }
  }

  /// Sums over key groups, divided by the rows' sums of probabilities.
  ATTNFORGE_DEVICE static void store(const Params& params, const Rows& rows, SharedMemory& smem,
                                     const float (&row_sum)[kRows], float (&o)[kColumns][kRows]) {
    const FwdParams& p = params.fwd;
    if constexpr (C.key_groups() > 1) {
      static_assert(kColumns == 1,
                    "several groups exist only where one has a thread for every column");
      const int thread = threadIdx.x;
#pragma unroll
      for (int r = 0; r < kRows; ++r) smem.p[thread][r] = o[0][r];
      __syncthreads();
      for (int g = 1; g < C.key_groups() && group() == 0; ++g)
#pragma unroll
        for (int r = 0; r < kRows; ++r) o[0][r] += smem.p[thread + g * C.threads_per_group()][r];
    }
    char* o_head = head_pointer<C.dtype_o>(p.o, rows.batch_out(params), rows.head);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const int row = rows.row_out(params, r);
      if (!rows.present(r)) break;
      // A row that sees no key: 0 and -inf.
      const float inverse = row_sum[r] == 0.0f ? 0.0f : 1.0f / row_sum[r];
#pragma unroll
      for (int c = 0; c < kColumns; ++c) {
        const int d = column() + c * C.threads_per_group();
        if (group() != 0 || d >= C.head_dim_v) break;
        store_1<C.dtype_o>(o_head + (row * p.o.stride_row + d) * element_bytes(C.dtype_o),
                           o[c][r] * inverse);
      }
      if (C.lse && threadIdx.x == 0) {
        float* lse = p.lse + rows.batch_out(params) * p.lse_stride_batch +
                     rows.head * p.lse_stride_head + row;
        *lse = row_sum[r] == 0.0f ? negative_infinity() : smem.row_max[r] + logf(row_sum[r]);
      }
    }
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    const FwdParams& p = params.fwd;
    __shared__ __align__(16) SharedMemory smem;
    const Rows rows(params);
    if constexpr (Lengths::kAnythingAfter)
      if (!rows.present(0)) return;  // of a sequence that is shorter than others
    const int kv_head = rows.head / (p.num_heads_q / p.num_heads_kv);
    const char* k_head = first_row<C.dtype_k>(p.k, rows, kv_head);
    const char* v_head = first_row<C.dtype_v>(p.v, rows, kv_head);

    // ---- 1. Queries, and the maxima of their scores ----
    load_queries(params, rows, smem);
    const Seen sees(params, rows);
    find_maxima(params, rows, sees, k_head, smem);

    // ---- 2. Probabilities of a tile of keys, then their product with V ----
    float row_sum[kRows], o[kColumns][kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      row_sum[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < kColumns; ++c) o[c][r] = 0.0f;
    }
    for (int tile = sees.begin; tile < sees.end; tile += C.num_threads) {
      const int key = tile + int(threadIdx.x);
      if (key < sees.end) {
        float s[kRows] = {};
        if (sees.present.any(key))
          scores(params, smem, rows, key_row<C.dtype_k>(params, p.k, rows, k_head, key), key, s);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const float p = sees(r, key) ? probability(s[r], smem.row_max[r]) : 0.0f;
          row_sum[r] += p;
          smem.p[threadIdx.x][r] = p;
        }
      }
      __syncthreads();
      add_products(params, rows, v_head, tile, min(C.num_threads, sees.end - tile), smem, o);
      __syncthreads();
    }
    reduce<Sum>(row_sum, smem);
    if constexpr (kHasSink<C>) {
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        row_sum[r] += probability(exact_sink(params, rows.head), smem.row_max[r]);
    }

    // ---- 3. Division, store ----
    store(params, rows, smem, row_sum, o);
  }
};

}  // namespace attnforge
