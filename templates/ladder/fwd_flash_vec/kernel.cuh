// kernel.cuh - FlashAttention on CUDA cores with wide loads and several query rows a thread: the
// step after fwd_flash_scalar. Every float4 of K or V that a lane loads meets rows_per_thread rows,
// so shared memory is no longer the bound; the lanes of a row share its exponentials out instead of
// repeating them, and rescale outputs only when a maximum has really grown.
#pragma once

#include "ladder/fwd_flash_vec/config.h"
#include "ladder/of_shape.cuh"
#include "pieces/fixed_lengths.cuh"
#include "ptx/shuffle.cuh"
#include "ptx/special.cuh"
#include "tile/elements.cuh"
#include "tile/tile_order.cuh"
#include "tile/unrolled.cuh"
#include "tile/visible_keys.cuh"

namespace attnforge {

template <FwdFlashVecConfig C>
struct FwdFlashVec {
  static_assert(C.valid(), "the generator renders only configs that pass reject()");
  static constexpr int kRows = C.rows_per_thread, kLanes = C.lanes_per_row;
  static constexpr int kQkChunks = C.qk_chunks(), kVChunks = C.v_chunks();

  struct SharedMemory {  // of float4: rows begin at multiples of 16 bytes
    float k[C.block_n][C.qk_pitch()];
    float v[C.block_n][C.v_pitch()];
    float p[C.num_warps * C.groups_per_warp()][C.p_pitch()];  // of a step: [key][row] of a group
  };
  using Scores = float[C.step_n()][kRows];

  // Which lane of which group a thread is. Threads t and t ^ 2 are the same lane of two groups, and
  // load the same chunks: a 16-byte load of a warp then takes shared memory two passes; in the
  // order of the threads it would take four.
  static constexpr bool kWholeWarp = kLanes == 32;  // one group: all threads differ

  ATTNFORGE_DEVICE static int lane_of(int thread) {
    return kWholeWarp ? thread % 32 : thread % 2 + thread / 4 % (kLanes / 2) * 2;
  }
  ATTNFORGE_DEVICE static int group_of(int thread) {
    const int in_warp = kWholeWarp ? 0 : thread % 32 / (2 * kLanes) * 2 + thread / 2 % 2;
    return thread / 32 * C.groups_per_warp() + in_warp;
  }
  /// The value of lane (lane ^ distance) of the same group; distance is a power of two.
  ATTNFORGE_DEVICE static float from_lane(float x, int distance) {
    return __shfl_xor_sync(~0u, x, kWholeWarp || distance == 1 ? distance : 2 * distance);
  }

  ATTNFORGE_DEVICE static float4 load_4_shared(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }

  /// Rows first_key to first_key + block_n of a tensor as fp32, eight elements a load; rows past
  /// the end of the sequence are zeros.
  template <int kColumns, int kPitch>
  ATTNFORGE_DEVICE static void load_tile(float (&tile)[C.block_n][kPitch], const char* head,
                                         i64 stride_row, int first_key, int seqlen_kv) {
    constexpr int kLoads = kColumns / 8;
#pragma unroll 2
    for (int i = threadIdx.x; i < C.block_n * kLoads; i += C.num_threads()) {
      const int row = i / kLoads, d = i % kLoads * 8;
      float x[8] = {};
      if (first_key + row < seqlen_kv) {
        const i64 at = (first_key + row) * stride_row + d;
        load_floats<C.dtype, C.alignment>(head + at * element_bytes(C.dtype), x);
      }
      float4* to = reinterpret_cast<float4*>(&tile[row][d]);
      to[0] = make_float4(x[0], x[1], x[2], x[3]);
      to[1] = make_float4(x[4], x[5], x[6], x[7]);
    }
  }

  /// Zeros after the head dim, which no tile's load touches.
  template <int kColumns, int kPitch>
  ATTNFORGE_DEVICE static void clear_padding(float (&tile)[C.block_n][kPitch]) {
    constexpr int kPadding = kPitch - kColumns;
    if constexpr (kPadding > 0) {
      for (int i = threadIdx.x; i < C.block_n * kPadding; i += C.num_threads())
        tile[i / kPadding][kColumns + i % kPadding] = 0.0f;
    }
  }

  /// Sums s over the lanes of a group so that each lane ends with the scores of its own keys,
  /// s[0] to s[keys_per_lane - 1]: in every exchange a lane gives away the half of the keys that
  /// are not its own. A third of the shuffles of full sums, and no exponential is made twice.
  ATTNFORGE_DEVICE static void sum_to_owners(Scores& s, int lane) {
#pragma unroll
    for (int distance = kLanes / 2, keys = C.step_n() / 2; distance > 0; distance /= 2, keys /= 2) {
      const bool upper = lane & distance;
#pragma unroll
      for (int j = 0; j < keys; ++j)
        unrolled<kRows>([&](int r) {
          const float given = upper ? s[j][r] : s[j + keys][r];
          const float kept = upper ? s[j + keys][r] : s[j][r];
          s[j][r] = kept + from_lane(given, distance);
        });
    }
  }

  template <class Operation>
  ATTNFORGE_DEVICE static float over_lanes(float x, const Operation& operation) {
#pragma unroll
    for (int distance = kLanes / 2; distance > 0; distance /= 2)
      x = operation(x, from_lane(x, distance));
    return x;
  }

  /// Each lane's share of the products of step_n keys, from row `first` of the tile on, then their
  /// sums.
  ATTNFORGE_DEVICE static void make_scores(const SharedMemory& smem,
                                           const float (&q)[kRows][kQkChunks][4], int first,
                                           int lane, Scores& s) {
#pragma unroll
    for (int j = 0; j < C.step_n(); ++j) {
      fill(s[j], 0.0f);
#pragma unroll
      for (int c = 0; c < kQkChunks; ++c) {
        const float4 k = load_4_shared(&smem.k[first + j][4 * (lane + c * kLanes)]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          s[j][r] = fmaf(q[r][c][0], k.x, s[j][r]);
          s[j][r] = fmaf(q[r][c][1], k.y, s[j][r]);
          s[j][r] = fmaf(q[r][c][2], k.z, s[j][r]);
          s[j][r] = fmaf(q[r][c][3], k.w, s[j][r]);
        }
      }
    }
    sum_to_owners(s, lane);
  }

  /// Adds the products of a step's probabilities with this lane's chunks of V.
  ATTNFORGE_DEVICE static void add_outputs(const SharedMemory& smem, int group, int first, int lane,
                                           float (&o)[kRows][kVChunks][4]) {
#pragma unroll
    for (int j = 0; j < C.step_n(); ++j) {
      float probability[kRows];
      unrolled<kRows>([&](int r) { probability[r] = smem.p[group][j * kRows + r]; });
#pragma unroll
      for (int c = 0; c < kVChunks; ++c) {
        const float4 v = load_4_shared(&smem.v[first + j][4 * (lane + c * kLanes)]);
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          o[r][c][0] = fmaf(probability[r], v.x, o[r][c][0]);
          o[r][c][1] = fmaf(probability[r], v.y, o[r][c][1]);
          o[r][c][2] = fmaf(probability[r], v.z, o[r][c][2]);
          o[r][c][3] = fmaf(probability[r], v.w, o[r][c][3]);
        }
      }
    }
  }

  /// A lane's chunks of query rows; rows past the end compute zeros.
  ATTNFORGE_DEVICE static void load_queries(const FwdParams& p, const char* head, int first_query,
                                            int lane, float (&q)[kRows][kQkChunks][4]) {
    unrolled<kRows, kQkChunks>([&](int r, int c) {
      const int d = 4 * (lane + c * kLanes);
      fill(q[r][c], 0.0f);
      if (first_query + r < p.seqlen_q && d < C.head_dim) {
        const i64 at = (first_query + r) * p.q.stride_row + d;
        load_floats<C.dtype, C.alignment>(head + at * element_bytes(C.dtype), q[r][c]);
      }
    });
  }

  /// A lane's chunks of a row of the output.
  ATTNFORGE_DEVICE static void store_row(char* row, int lane, float inverse,
                                         const float (&o)[kVChunks][4]) {
#pragma unroll
    for (int c = 0; c < kVChunks; ++c) {
      const int d = 4 * (lane + c * kLanes);
      if (d >= C.head_dim_v) break;
      store_4<C.dtype, C.alignment>(row + d * element_bytes(C.dtype), o[c][0] * inverse,
                                    o[c][1] * inverse, o[c][2] * inverse, o[c][3] * inverse);
    }
  }

  ATTNFORGE_DEVICE static void run(const FwdTiledParams& params) {
    extern __shared__ __align__(16) u8 shared_memory[];
    SharedMemory& smem = *reinterpret_cast<SharedMemory*>(shared_memory);
    const FwdParams& p = params.fwd;
    const TilePlace place = place_tile(params.order, int(blockIdx.x));
    const int batch = place.head / p.num_heads_q, head = place.head % p.num_heads_q;
    const FixedLengths lengths(params, batch);
    const int kv_head = head / (p.num_heads_q / p.num_heads_kv);
    const char* k_head = head_pointer<C.dtype>(p.k, batch, kv_head);
    const char* v_head = head_pointer<C.dtype>(p.v, batch, kv_head);
    const int group = group_of(int(threadIdx.x)), lane = lane_of(int(threadIdx.x));
    const int first_row = place.m_block * C.block_m();
    const int first_query = first_row + group * kRows;  // of this thread
    const int last_row = min(first_row + C.block_m(), p.seqlen_q) - 1;

    // ---- 1. This lane's chunks of its query rows ----
    float q[kRows][kQkChunks][4], o[kRows][kVChunks][4] = {};
    load_queries(p, head_pointer<C.dtype>(p.q, batch, head), first_query, lane, q);
    clear_padding<C.head_dim>(smem.k);
    clear_padding<C.head_dim_v>(smem.v);
    OnlineRow softmax[kRows];
    const float scale_log2 = p.softmax_scale * 1.4426950408889634f;
    const ScoreOf<C> score(p);

    const auto walk = WalkOf<C>::of_queries(p, lengths, C.block_n, first_row, last_row);
    for (int i = 0; i < walk.count(); ++i) {
      const int n = walk.tile(i);
      // ---- 2. A tile of K and V to shared memory, as fp32 ----
      __syncthreads();  // all warps are done with the tile before
      load_tile<C.head_dim>(smem.k, k_head, p.k.stride_row, n * C.block_n, p.seqlen_kv);
      load_tile<C.head_dim_v>(smem.v, v_head, p.v.stride_row, n * C.block_n, p.seqlen_kv);
      __syncthreads();
      const bool is_masked = walk.masked(i);

#pragma unroll 1
      for (int first = 0; first < C.block_n; first += C.step_n()) {
        // ---- 3. Scores of step_n keys ----
        Scores s;
        make_scores(smem, q, first, lane, s);

        // ---- 4. Probabilities of this lane's keys ----
        const int own_key = n * C.block_n + first + lane * C.keys_per_lane;
        float top[kRows];
        bool grew = false;
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          top[r] = negative_infinity();
          const VisibleKeys visible = VisibleKeys::of_row(p, lengths, first_query + r);
#pragma unroll
          for (int j = 0; j < C.keys_per_lane; ++j) {
            s[j][r] = score(s[j][r]);
            if (is_masked) s[j][r] = masked_score<C>(s[j][r], own_key + j, visible);
            top[r] = fmaxf(top[r], s[j][r]);
          }
          grew |= (top[r] - softmax[r].row_max) * scale_log2 > kLazy;
        }
        if (any_lane(grew)) {
#pragma unroll
          for (int r = 0; r < kRows; ++r) {
            const float row_top = over_lanes(top[r], [](float a, float b) { return fmaxf(a, b); });
            const float rescale = softmax[r].raise_max(row_top, scale_log2);
            unrolled<kVChunks, 4>([&](int c, int i) { o[r][c][i] *= rescale; });
          }
        }
        __syncwarp();  // all lanes are done with the probabilities of the step before
        unrolled<C.keys_per_lane, kRows>([&](int j, int r) {
          smem.p[group][(lane * C.keys_per_lane + j) * kRows + r] = softmax[r].probability(
              s[j][r], scale_log2);
        });
        __syncwarp();

        // ---- 5. Output: all keys of the step, this lane's chunks ----
        add_outputs(smem, group, first, lane, o);
      }
    }

    // ---- 6. Sums of whole rows, division, store ----
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      const float sum = over_lanes(softmax[r].row_sum, [](float a, float b) { return a + b; });
      const int query = first_query + r;
      if (query >= p.seqlen_q) continue;  // the same in all lanes of the group
      store_row(
          head_pointer<C.dtype>(p.o, batch, head) + query * p.o.stride_row * element_bytes(C.dtype),
          lane, softmax[r].inverse_sum(sum), o[r]);
      if (C.lse && lane == 0) {
        p.lse[batch * p.lse_stride_batch + head * p.lse_stride_head + query] = softmax[r].lse(
            sum, p.softmax_scale);
      }
    }
  }

 private:
  /// As long as no row of the warp grew by more than 2^8 the old maxima stay: fp32 sums of numbers
  /// up to 256 are as exact as of numbers up to 1.
  static constexpr float kLazy = 8.0f;
};

}  // namespace attnforge
