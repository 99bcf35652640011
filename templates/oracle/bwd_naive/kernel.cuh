// kernel.cuh - attention backward as it is written in textbooks, in fp32: a block has a few rows of
// dq and walks over the keys, or a few of dk and dv and walks over the queries. Both are one code:
// a row of its own side has two vectors, a (q or k) and b (dout or v), and so has one of the other;
// s = a . a, dp = b . b. That of a head's sink is a block's. The oracle of other kernels on the
// GPU, so it stays simple.
#pragma once

#include "backward/params.h"
#include "base.cuh"
#include "base_params.h"
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

  /// kOfQueries: rows of dq; else of dk and dv. kOfArrays: what rows of queries add to the
  /// gradients of arrays, and nothing else.
  template <bool kOfQueries, bool kOfArrays = false>
  ATTNFORGE_DEVICE static void gradients(const Params& params, const Rows& rows,
                                         SharedMemory& smem) {
    const FwdParams& p = params.fwd;
    const int thread = threadIdx.x;
    const Lengths& lengths = rows.lengths;
    const int group = p.num_heads_q / p.num_heads_kv;
    constexpr int kDtypeA = kOfQueries ? C.dtype : C.dtype_k;  // of its own side
    constexpr int kDtypeB = kOfQueries ? C.dtype_o : C.dtype_v;
    constexpr int kOtherA = kOfQueries ? C.dtype_k : C.dtype;
    constexpr int kOtherB = kOfQueries ? C.dtype_v : C.dtype_o;
    const TensorRef& own_a = kOfQueries ? p.q : p.k;
    const TensorRef& own_b = kOfQueries ? params.dout : p.v;
    const TensorRef& other_a = kOfQueries ? p.k : p.q;
    const TensorRef& other_b = kOfQueries ? p.v : params.dout;
    const int own_begin = kOfQueries ? lengths.q_begin() : lengths.kv_begin();
    const int other_begin = kOfQueries ? lengths.kv_begin() : lengths.q_begin();

    // ---- 1. The block's rows to shared memory; rows past the end are 0 ----
#pragma unroll 1
    for (int r = 0; r < kRows; ++r) {
      const int at = own_begin + rows.at[r];
      const char* a = row_of<kDtypeA>(own_a, lengths.batch(), rows.head, at);
      const char* b = row_of<kDtypeB>(own_b, lengths.batch(), rows.head, at);
      for (int d = thread; d < C.head_dim; d += kThreads)
        smem.a[r][d] = rows.present(r) ? load_1<kDtypeA>(a + d * element_bytes(kDtypeA)) : 0.0f;
      for (int d = thread; d < C.head_dim_v; d += kThreads)
        smem.b[r][d] = rows.present(r) ? load_1<kDtypeB>(b + d * element_bytes(kDtypeB)) : 0.0f;
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

    const SeenRange seen(p, lengths);
    int lowest = rows.at[0], highest = rows.at[0];
#pragma unroll
    for (int r = 1; r < kRows; ++r) {
      lowest = min(lowest, rows.at[r]);
      highest = max(highest, rows.at[r]);
    }
    const int others = kOfQueries ? lengths.kv() : lengths.q();
    const int begin = max(kOfQueries ? lowest + seen.from : lowest - seen.to, 0);
    const int end = min((kOfQueries ? highest + seen.to : highest - seen.from) + 1, others);

    // A thread's columns of dq, or of dk and then dv, are num_threads apart.
    constexpr int kColumns = C.head_dim + (kOfQueries ? 0 : C.head_dim_v);
    constexpr int kOfThread = ceil_div(kColumns, kThreads);
    float sums[kOfThread][kRows], ds_squares[kRows], p_squares[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      ds_squares[r] = p_squares[r] = 0.0f;
#pragma unroll
      for (int c = 0; c < kOfThread; ++c) sums[c][r] = 0.0f;
    }

    const int first_head = kOfQueries ? rows.head / group : rows.head * group;
    const int last_head = kOfQueries ? first_head : first_head + group - 1;
#pragma unroll 1
    for (int head = first_head; head <= last_head; ++head) {
#pragma unroll 1
      for (int tile = begin; tile < end; tile += kThreads) {
        // ---- 2. p and ds of a row of the other side a thread ----
        const int other = tile + thread;
        if (other < end) {
          float s[kRows], dp[kRows];
          const int at = other_begin + other;
          products<kOtherA>(smem.a, row_of<kOtherA>(other_a, lengths.batch(), head, at), s);
          products<kOtherB>(smem.b, row_of<kOtherB>(other_b, lengths.batch(), head, at), dp);
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
                              exact_mask<C, Pieces>(params, lengths, rows.sequence, query_head,
                                                    query, key);
            auto [score, slope] = exact_score<C>(p, s[r]);
            if constexpr (kOfArrays) {
              if (sees) {
                const float text = Pieces::Score::of_pair(params, lengths, rows.sequence,
                                                          query_head, query, key, score);
                const float probability = expf(text - lse), of_text = probability * (dp[r] - delta);
                const float size = probability * (fabsf(dp[r]) + fabsf(delta));
                Pieces::Dargs::of_pair(params, lengths, rows.sequence, query_head, query, key,
                                       score, [&](float* gradient, i64 element, float of_read) {
                                         add_to_darg(gradient, element, params.dq_norms != nullptr,
                                                     of_text * of_read, size * fabsf(of_read));
                                       });
              }
              continue;
            }
            if (sees) {
              slope *= exact_text_slope<C, Pieces>(params, lengths, rows.sequence, query_head,
                                                   query, key, score);
              score = exact_text<C, Pieces>(params, lengths, rows.sequence, query_head, query, key,
                                            score);
            }
            const float probability = sees ? expf(score - lse) : 0.0f;
            const float ds = sees ? probability * (dp[r] - delta) * slope : 0.0f;
            smem.p[thread][r] = probability;
            smem.ds[thread][r] = ds;
            p_squares[r] += probability * probability;
            ds_squares[r] += ds * ds;
          }
        }
        if constexpr (kOfArrays) continue;
        __syncthreads();

        // ---- 3. Their products with the other side's rows ----
        const int count = min(kThreads, end - tile);
        const char* a = row_of<kOtherA>(other_a, lengths.batch(), head, other_begin + tile);
        const char* b = row_of<kOtherB>(other_b, lengths.batch(), head, other_begin + tile);
#pragma unroll
        for (int c = 0; c < kOfThread; ++c) {
          const int column = thread + c * kThreads;
          if (column < C.head_dim) {
            const char* x = a + column * element_bytes(kOtherA);
#pragma unroll 2
            for (int i = 0; i < count; ++i, x += other_a.stride_row * element_bytes(kOtherA)) {
              const float value = load_1<kOtherA>(x);
#pragma unroll
              for (int r = 0; r < kRows; ++r) sums[c][r] += smem.ds[i][r] * value;
            }
          } else if (column < kColumns) {
            const char* x = b + (column - C.head_dim) * element_bytes(kOtherB);
#pragma unroll 2
            for (int i = 0; i < count; ++i, x += other_b.stride_row * element_bytes(kOtherB)) {
              const float value = load_1<kOtherB>(x);
#pragma unroll
              for (int r = 0; r < kRows; ++r) sums[c][r] += smem.p[i][r] * value;
            }
          }
        }
        __syncthreads();
      }
    }

    // ---- 4. Store ----
    if constexpr (kOfArrays) return;
    constexpr int kGradientA = C.gradient_dtype(kDtypeA), kGradientV = C.gradient_dtype(C.dtype_v);
    const TensorRef& to = kOfQueries ? params.dq : params.dk;
    const int batch_out = rows.listed ? 0 : lengths.batch();
    const int row_out = rows.first + (rows.listed ? 0 : own_begin);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!rows.present(r)) break;
#pragma unroll
      for (int c = 0; c < kOfThread; ++c) {
        const int column = thread + c * kThreads;
        if (column < C.head_dim) {
          store<kGradientA>(row_of<kGradientA>(to, batch_out, rows.head, row_out + r) +
                                column * element_bytes(kGradientA),
                            sums[c][r] * p.softmax_scale);
        } else if (column < kColumns) {
          store<kGradientV>(row_of<kGradientV>(params.dv, batch_out, rows.head, row_out + r) +
                                (column - C.head_dim) * element_bytes(kGradientV),
                            sums[c][r]);
        }
      }
    }
    if (!rows.listed) return;
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      smem.ds[thread][r] = ds_squares[r], smem.p[thread][r] = p_squares[r];
    __syncthreads();
    if (thread >= kRows || !rows.present(thread)) return;
    float of_ds = 0.0f, of_p = 0.0f;
    for (int i = 0; i < kThreads; ++i) of_ds += smem.ds[i][thread], of_p += smem.p[i][thread];
    const i64 norm = i64(rows.head) * rows.count + rows.first + thread;
    (kOfQueries ? params.dq_norms : params.dk_norms)[norm] = sqrtf(of_ds);
    if constexpr (!kOfQueries) params.dv_norms[norm] = sqrtf(of_p);
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
