// kernel.cuh - attention backward as it is written in textbooks, in fp32: a block has a few rows of
// dq and walks over the keys, or a few of dk and dv and walks over the queries. Both are one code:
// a row of its own side has two vectors, a (q or k) and b (dout or v), and so has one of the other;
// s = a . a, dp = b . b. That of a head's sink is a block's. It is an oracle, so it stays simple.
#pragma once

#include "backward/params.h"
#include "oracle/bwd_naive/config.h"
#include "oracle/exact_mask.cuh"
#include "oracle/exact_score.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"

namespace attnforge {

/// Pieces: Lengths is used, and what the user's texts are asked by. ParamsType is the kernel's
/// argument: BwdNaiveParams, or what an entry derives from it.
template <BwdNaiveConfig C, class Pieces, class ParamsType = BwdNaiveParams>
struct BwdNaive {
  using Params = ParamsType;
  using Lengths = typename Pieces::Lengths;
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  static constexpr int kRows = C.kRows, kThreads = C.num_threads;

  struct SharedMemory {
    float a[kRows][C.head_dim];    // 16-byte aligned rows: head dims are multiples of 8
    float b[kRows][C.head_dim_v];  // of the block's own side
    float p[kThreads][kRows];
    float ds[kThreads][kRows];
    float lse[kRows], delta[kRows];  // of queries
  };

  /// The rows of a thread block: row r is query or key `at[r]` of the sequence.
  struct Rows {
    int head, sequence;
    int first, end;  // row r is one if first + r < end
    int count;       // of a head, with those of other blocks
    bool listed;
    Lengths lengths;
    int at[kRows];

    ATTNFORGE_DEVICE Rows(const Params& params, const ListedRow* list, int count, int block,
                          int heads, bool of_queries)
        : head(block / ceil_div(count, kRows) % heads),
          sequence(list != nullptr ? list[block % ceil_div(count, kRows) * kRows].batch
                                   : block / ceil_div(count, kRows) / heads),
          first(block % ceil_div(count, kRows) * kRows),
          count(count),
          listed(list != nullptr),
          lengths(params, sequence) {
      end = listed ? count : of_queries ? lengths.q() : lengths.kv();
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        at[r] = listed ? list[min(first + r, end - 1)].query : first + r;
    }
    ATTNFORGE_DEVICE bool present(int r) const { return first + r < end; }
  };

  /// A query's sum over columns of dout * o, - dlse.
  ATTNFORGE_DEVICE static float delta_of(const Params& params, const Lengths& lengths, int head,
                                         int query, int first_column, int step) {
    const char* o = row_of<C.dtype_o>(params.fwd.o, lengths.batch(), head,
                                      lengths.q_begin() + query);
    const char* dout = row_of<C.dtype_o>(params.dout, lengths.batch(), head,
                                         lengths.q_begin() + query);
    float sum = 0.0f;
    for (int d = first_column; d < C.head_dim_v; d += step)
      sum += load_1<C.dtype_o>(o + d * element_bytes(C.dtype_o)) *
             load_1<C.dtype_o>(dout + d * element_bytes(C.dtype_o));
    if (params.dlse != nullptr && first_column == 0)
      sum -= params.dlse[lengths.batch() * params.dlse_stride_batch +
                         head * params.dlse_stride_head + lengths.q_begin() + query];
    return sum;
  }

  ATTNFORGE_DEVICE static float lse_of(const Params& params, const Lengths& lengths, int head,
                                       int query) {
    const FwdParams& p = params.fwd;
    return p.lse[lengths.batch() * p.lse_stride_batch + head * p.lse_stride_head +
                 lengths.q_begin() + query];
  }

  template <int kDtype>
  ATTNFORGE_DEVICE static char* row_of(const TensorRef& tensor, int batch, int head, int row) {
    return head_pointer<kDtype>(tensor, batch, head) +
           row * tensor.stride_row * element_bytes(kDtype);
  }

  /// Products of a row of the other side with those of the block.
  template <int kDtype, int kColumns>
  ATTNFORGE_DEVICE static void products(const float (&own)[kRows][kColumns], const char* row,
                                        float (&sums)[kRows]) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) sums[r] = 0.0f;
#pragma unroll 1
    for (int d = 0; d < kColumns; d += 8) {
      float x[8];
      load_floats<kDtype, C.alignment>(row + d * element_bytes(kDtype), x);
#pragma unroll
      for (int r = 0; r < kRows; ++r)
#pragma unroll
        for (int i = 0; i < 8; ++i) sums[r] += own[r][d + i] * x[i];
    }
  }

  template <int kDtype>
  ATTNFORGE_DEVICE static void store(char* to, float x) {
    if constexpr (C.accumulate) x += load_1<kDtype>(to);
    store_1<kDtype>(to, x);
  }

  /// A read that the score's text makes of an array whose gradient is wanted adds x to that. With
  /// lists an element has a second number after its gradient: the sum of the sizes.
  ATTNFORGE_DEVICE static void add_to_darg(float* gradient, i64 element, bool listed, float x,
                                           float size) {
    atomicAdd(gradient + element * (listed ? 2 : 1), x);
    if (listed) atomicAdd(gradient + element * 2 + 1, size);
  }

  /// kOfQueries: rows of dq; else of dk and dv. Tensors of the block's own side, of which a row is
  /// two vectors, and of the other side.
  template <bool kOfQueries>
  struct Sides {
    static constexpr int kOwnA = kOfQueries ? C.dtype : C.dtype_k;
    static constexpr int kOwnB = kOfQueries ? C.dtype_o : C.dtype_v;
    static constexpr int kOtherA = kOfQueries ? C.dtype_k : C.dtype;
    static constexpr int kOtherB = kOfQueries ? C.dtype_v : C.dtype_o;
    const TensorRef &own_a, &own_b, &other_a, &other_b;
    int own_begin, other_begin;

    ATTNFORGE_DEVICE Sides(const Params& params, const Lengths& lengths)
        : own_a(kOfQueries ? params.fwd.q : params.fwd.k),
          own_b(kOfQueries ? params.dout : params.fwd.v),
          other_a(kOfQueries ? params.fwd.k : params.fwd.q),
          other_b(kOfQueries ? params.fwd.v : params.dout),
          own_begin(kOfQueries ? lengths.q_begin() : lengths.kv_begin()),
          other_begin(kOfQueries ? lengths.kv_begin() : lengths.q_begin()) {}
  };

  /// A thread's columns of dq, or of dk and then dv, are num_threads apart.
  template <bool kOfQueries>
  struct Sums {
    static constexpr int kColumns = C.head_dim + (kOfQueries ? 0 : C.head_dim_v);
    static constexpr int kOfThread = ceil_div(kColumns, kThreads);
    float of[kOfThread][kRows], ds_squares[kRows], p_squares[kRows];

    ATTNFORGE_DEVICE void clear() {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        ds_squares[r] = p_squares[r] = 0.0f;
#pragma unroll
        for (int c = 0; c < kOfThread; ++c) of[c][r] = 0.0f;
      }
    }
  };

  /// The block's rows to shared memory; rows past the end are 0.
  template <bool kOfQueries>
  ATTNFORGE_DEVICE static void load_rows(const Params& params, const Rows& rows,
                                         const Sides<kOfQueries>& sides, SharedMemory& smem) {
    using S = Sides<kOfQueries>;
    const int thread = threadIdx.x;
    const Lengths& lengths = rows.lengths;
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const int at = sides.own_begin + rows.at[r];
      const char* a = row_of<S::kOwnA>(sides.own_a, lengths.batch(), rows.head, at);
      const char* b = row_of<S::kOwnB>(sides.own_b, lengths.batch(), rows.head, at);
      for (int d = thread; d < C.head_dim; d += kThreads)
        smem.a[r][d] = rows.present(r) ? load_1<S::kOwnA>(a + d * element_bytes(S::kOwnA)) : 0.0f;
      for (int d = thread; d < C.head_dim_v; d += kThreads)
        smem.b[r][d] = rows.present(r) ? load_1<S::kOwnB>(b + d * element_bytes(S::kOwnB)) : 0.0f;
    }
    if constexpr (kOfQueries) {
      for (int r = thread / 32; r < kRows; r += C.num_warps()) {
        float delta = rows.present(r)
                          ? delta_of(params, lengths, rows.head, rows.at[r], thread % 32, 32)
                          : 0.0f;
#pragma unroll
        for (int distance = 16; distance > 0; distance /= 2)
          delta += __shfl_xor_sync(0xffffffffu, delta, distance);
        if (thread % 32 == 0) {
          smem.delta[r] = delta;
          smem.lse[r] = rows.present(r) ? lse_of(params, lengths, rows.head, rows.at[r])
                                        : negative_infinity();
        }
      }
    }
    __syncthreads();
  }

  /// What a pair that is seen adds to the gradients of arrays that the score's text reads.
  ATTNFORGE_DEVICE static void add_to_arrays(const Params& params, const Rows& rows, int head,
                                             int query, int key, float score, float lse,
                                             float delta, float dp) {
    const float text = Pieces::Score::of_pair(params, rows.lengths, rows.sequence, head, query, key,
                                              score);
    const float probability = expf(text - lse), of_text = probability * (dp - delta);
    const float size = probability * (fabsf(dp) + fabsf(delta));
    Pieces::Dargs::of_pair(params, rows.lengths, rows.sequence, head, query, key, score,
                           [&](float* gradient, i64 element, float of_read) {
                             add_to_darg(gradient, element, params.dq_norms != nullptr,
                                         of_text * of_read, size * fabsf(of_read));
                           });
  }

  /// p and ds of row `other` of the other side with each of the block's, to shared memory.
  /// kOfArrays: instead what they add to the gradients of arrays.
  template <bool kOfQueries, bool kOfArrays>
  ATTNFORGE_DEVICE static void weigh(const Params& params, const Rows& rows,
                                     const Sides<kOfQueries>& sides, const SeenRange& seen,
                                     int head, int other, SharedMemory& smem,
                                     Sums<kOfQueries>& sums) {
    using S = Sides<kOfQueries>;
    const Lengths& lengths = rows.lengths;
    float s[kRows], dp[kRows];
    const int at = sides.other_begin + other;
    products<S::kOtherA>(smem.a, row_of<S::kOtherA>(sides.other_a, lengths.batch(), head, at), s);
    products<S::kOtherB>(smem.b, row_of<S::kOtherB>(sides.other_b, lengths.batch(), head, at), dp);
    float lse = 0.0f, delta = 0.0f;
    const int query_head = kOfQueries ? rows.head : head;
    if constexpr (!kOfQueries) {
      lse = lse_of(params, lengths, head, other);
      delta = delta_of(params, lengths, head, other, 0, 1);
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if constexpr (kOfQueries) lse = smem.lse[r], delta = smem.delta[r];
      const int query = kOfQueries ? rows.at[r] : other;
      const int key = kOfQueries ? other : rows.at[r];
      const bool sees = key >= query + seen.from && key <= query + seen.to &&
                        lse != negative_infinity() && rows.present(r) &&
                        exact_mask<C, Pieces>(params, lengths, rows.sequence, query_head, query,
                                              key);
      auto [score, slope] = exact_score<C>(params, query_head, s[r]);
      if constexpr (kOfArrays) {
        if (sees) add_to_arrays(params, rows, query_head, query, key, score, lse, delta, dp[r]);
        continue;
      }
      if (sees) {
        slope *= exact_text_slope<C, Pieces>(params, lengths, rows.sequence, query_head, query, key,
                                             score);
        score = exact_text<C, Pieces>(params, lengths, rows.sequence, query_head, query, key,
                                      score);
      }
      const float probability = sees ? expf(score - lse) : 0.0f;
      const float ds = sees ? probability * (dp[r] - delta) * slope : 0.0f;
      smem.p[threadIdx.x][r] = probability;
      smem.ds[threadIdx.x][r] = ds;
      sums.p_squares[r] += probability * probability;
      sums.ds_squares[r] += ds * ds;
    }
  }

  /// Adds `count` rows of a tensor from x on, each times a weight of the block's rows.
  template <int kDtype>
  ATTNFORGE_DEVICE static void add_rows(const char* x, i64 stride_row, int count,
                                        const float (&weights)[kThreads][kRows],
                                        float (&sums)[kRows]) {
#pragma unroll 2
    for (int i = 0; i < count; ++i, x += stride_row * element_bytes(kDtype)) {
      const float value = load_1<kDtype>(x);
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[r] += weights[i][r] * value;
    }
  }

  /// Products of ds and p with `count` rows of the other side, from `first` on.
  template <bool kOfQueries>
  ATTNFORGE_DEVICE static void add_products(const Rows& rows, const Sides<kOfQueries>& sides,
                                            int head, int first, int count,
                                            const SharedMemory& smem, Sums<kOfQueries>& sums) {
    using S = Sides<kOfQueries>;
    const char* a = row_of<S::kOtherA>(sides.other_a, rows.lengths.batch(), head, first);
    const char* b = row_of<S::kOtherB>(sides.other_b, rows.lengths.batch(), head, first);
#pragma unroll
    for (int c = 0; c < sums.kOfThread; ++c) {
      const int column = int(threadIdx.x) + c * kThreads;
      if (column < C.head_dim) {
        add_rows<S::kOtherA>(a + column * element_bytes(S::kOtherA), sides.other_a.stride_row,
                             count, smem.ds, sums.of[c]);
      } else if (column < sums.kColumns) {
        add_rows<S::kOtherB>(b + (column - C.head_dim) * element_bytes(S::kOtherB),
                             sides.other_b.stride_row, count, smem.p, sums.of[c]);
      }
    }
  }

  template <bool kOfQueries>
  ATTNFORGE_DEVICE static void store_sums(const Params& params, const Rows& rows,
                                          const Sides<kOfQueries>& sides,
                                          const Sums<kOfQueries>& sums) {
    constexpr int kGradientA = C.gradient_dtype(Sides<kOfQueries>::kOwnA);
    constexpr int kGradientV = C.gradient_dtype(C.dtype_v);
    const TensorRef& to = kOfQueries ? params.dq : params.dk;
    const int batch = rows.listed ? 0 : rows.lengths.batch();
    const int row = rows.first + (rows.listed ? 0 : sides.own_begin);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!rows.present(r)) break;
#pragma unroll
      for (int c = 0; c < sums.kOfThread; ++c) {
        const int column = int(threadIdx.x) + c * kThreads;
        if (column < C.head_dim) {
          store<kGradientA>(row_of<kGradientA>(to, batch, rows.head, row + r) +
                                column * element_bytes(kGradientA),
                            sums.of[c][r] * params.fwd.softmax_scale);
        } else if (column < sums.kColumns) {
          store<kGradientV>(row_of<kGradientV>(params.dv, batch, rows.head, row + r) +
                                (column - C.head_dim) * element_bytes(kGradientV),
                            sums.of[c][r]);
        }
      }
    }
  }

  /// Of listed rows: the norms of their ds, and of their p.
  template <bool kOfQueries>
  ATTNFORGE_DEVICE static void store_norms(const Params& params, const Rows& rows,
                                           const Sums<kOfQueries>& sums, SharedMemory& smem) {
    const int thread = threadIdx.x;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      smem.ds[thread][r] = sums.ds_squares[r], smem.p[thread][r] = sums.p_squares[r];
    __syncthreads();
    if (thread >= kRows || !rows.present(thread)) return;
    float of_ds = 0.0f, of_p = 0.0f;
    for (int i = 0; i < kThreads; ++i) of_ds += smem.ds[i][thread], of_p += smem.p[i][thread];
    const i64 norm = i64(rows.head) * rows.count + rows.first + thread;
    (kOfQueries ? params.dq_norms : params.dk_norms)[norm] = sqrtf(of_ds);
    if constexpr (!kOfQueries) params.dv_norms[norm] = sqrtf(of_p);
  }

  /// kOfArrays: what rows of queries add to the gradients of arrays, and nothing else.
  template <bool kOfQueries, bool kOfArrays = false>
  ATTNFORGE_DEVICE static void gradients(const Params& params, const Rows& rows,
                                         SharedMemory& smem) {
    const Lengths& lengths = rows.lengths;
    const Sides<kOfQueries> sides(params, lengths);
    load_rows(params, rows, sides, smem);

    const SeenRange seen(params.fwd, lengths);
    int lowest = rows.at[0], highest = rows.at[0];
#pragma unroll
    for (int r = 1; r < kRows; ++r) {
      lowest = min(lowest, rows.at[r]);
      highest = max(highest, rows.at[r]);
    }
    const int others = kOfQueries ? lengths.kv() : lengths.q();
    const int begin = max(kOfQueries ? lowest + seen.from : lowest - seen.to, 0);
    const int end = min((kOfQueries ? highest + seen.to : highest - seen.from) + 1, others);
    Sums<kOfQueries> sums;
    sums.clear();

    const int group = params.fwd.num_heads_q / params.fwd.num_heads_kv;
    const int first_head = kOfQueries ? rows.head / group : rows.head * group;
    const int last_head = kOfQueries ? first_head : first_head + group - 1;
#pragma unroll 1
    for (int head = first_head; head <= last_head; ++head) {
#pragma unroll 1
      for (int tile = begin; tile < end; tile += kThreads) {
        const int other = tile + int(threadIdx.x);
        if (other < end)
          weigh<kOfQueries, kOfArrays>(params, rows, sides, seen, head, other, smem, sums);
        if constexpr (kOfArrays) continue;
        __syncthreads();
        add_products(rows, sides, head, sides.other_begin + tile, min(kThreads, end - tile), smem,
                     sums);
        __syncthreads();
      }
    }
    if constexpr (kOfArrays) return;
    store_sums(params, rows, sides, sums);
    if (rows.listed) store_norms(params, rows, sums, smem);
  }

  /// The gradient of a head's sink, a row per thread.
  ATTNFORGE_DEVICE static void gradient_of_sink(const Params& params, int head,
                                                SharedMemory& smem) {
    const int thread = threadIdx.x;
    const float sink = exact_sink(params, head);
    float sum = 0.0f, size = 0.0f;
#pragma unroll 1
    for (int sequence = 0; sequence < params.fwd.batch; ++sequence) {
      const Lengths lengths(params, sequence);
#pragma unroll 1
      for (int query = thread; query < lengths.q(); query += kThreads) {
        const float lse = lse_of(params, lengths, head, query);
        if (lse == negative_infinity()) continue;
        const float term = expf(sink - lse) * delta_of(params, lengths, head, query, 0, 1);
        sum -= term;
        size += fabsf(term);
      }
    }
    smem.ds[thread][0] = sum, smem.p[thread][0] = size;
    __syncthreads();
    if (thread != 0) return;
    for (int i = 1; i < kThreads; ++i) sum += smem.ds[i][0], size += smem.p[i][0];
    params.dsinks[head] = (C.accumulate ? params.dsinks[head] : 0.0f) + sum;
    if (params.dsink_norms != nullptr) params.dsink_norms[head] = size;
  }

  ATTNFORGE_DEVICE static void run(const Params& params) {
    __shared__ __align__(16) SharedMemory smem;
    const FwdParams& p = params.fwd;
    if constexpr (C.dargs) {
      const int of_arrays = params.row_blocks + (kHasSink<C> ? p.num_heads_q : 0);
      if (int(blockIdx.x) >= of_arrays) {
        const Rows rows(params, nullptr, p.seqlen_q, int(blockIdx.x) - of_arrays, p.num_heads_q,
                        true);
        if (rows.present(0)) gradients<true, true>(params, rows, smem);
        return;
      }
    }
    if constexpr (kHasSink<C>) {
      if (int(blockIdx.x) >= params.row_blocks)
        return gradient_of_sink(params, int(blockIdx.x) - params.row_blocks, smem);
    }
    if (int(blockIdx.x) < params.query_blocks) {
      const Rows rows(params, params.queries, params.num_queries, blockIdx.x, p.num_heads_q, true);
      if (rows.present(0)) gradients<true>(params, rows, smem);
    } else {
      const Rows rows(params, params.keys, params.num_keys, blockIdx.x - params.query_blocks,
                      p.num_heads_kv, false);
      if (rows.present(0)) gradients<false>(params, rows, smem);
    }
  }
};

}  // namespace attnforge
