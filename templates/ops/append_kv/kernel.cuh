// kernel.cuh - writes new rows of K and V into caches, rotated by their positions and quantised
// where asked, and rotates the queries of these positions with them.
#pragma once

#include "ops/append_kv/config.h"
#include "ops/append_kv/quantise.cuh"
#include "parts/rope/rotate_pair.cuh"
#include "ptx/convert.cuh"
#include "ptx/cp_async.cuh"
#include "ptx/shared_memory.cuh"
#include "tile/elements.cuh"

namespace attnforge {

/// kAlignment: bytes of all pointers and strides but those of the tables, which are aligned to 16.
template <AppendShape S, int kAlignment>
struct AppendKv {
  static constexpr int kBytes = element_bytes(S.dtype);
  static constexpr int kVector = S.vector(), kWords = kVector * kBytes / 4;
  using Vector = u32[kWords];
  using Row = float[kVector];  // of a table

  // A warp's next strip comes by way of shared memory, where it takes no registers. A lane reads
  // what it loaded itself.
  static constexpr bool kAhead = kAlignment >= 4 * kWords;
  using Lanes = Vector[AppendShape::kThreads];

  /// Elements i of both vectors with each other.
  ATTNFORGE_DEVICE static void rotate_apart(Vector& a, Vector& b, const Row& cos, const Row& sin) {
#pragma unroll
    for (int w = 0; w < kWords; ++w) {
      if constexpr (S.dtype == kFp32) {
        float x = __uint_as_float(a[w]), y = __uint_as_float(b[w]);
        rotate_pair(x, y, cos[w], sin[w]);
        a[w] = __float_as_uint(x), b[w] = __float_as_uint(y);
      } else {
        float x[2], y[2];
        unpack2<S.dtype>(a[w], x[0], x[1]);
        unpack2<S.dtype>(b[w], y[0], y[1]);
        rotate_pair(x[0], y[0], cos[2 * w], sin[2 * w]);
        rotate_pair(x[1], y[1], cos[2 * w + 1], sin[2 * w + 1]);
        a[w] = pack2<S.dtype>(x[0], x[1]), b[w] = pack2<S.dtype>(y[0], y[1]);
      }
    }
  }
  /// Elements 2 i and 2 i + 1, the first pairs of which are in `a`.
  ATTNFORGE_DEVICE static void rotate_neighbours(Vector& a, Vector& b, const Row& cos,
                                                 const Row& sin) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      Vector& words = i < kVector / 2 ? a : b;
      const int at = i % (kVector / 2);
      if constexpr (S.dtype == kFp32) {
        float x = __uint_as_float(words[2 * at]), y = __uint_as_float(words[2 * at + 1]);
        rotate_pair(x, y, cos[i], sin[i]);
        words[2 * at] = __float_as_uint(x), words[2 * at + 1] = __float_as_uint(y);
      } else {
        float x, y;
        unpack2<S.dtype>(words[at], x, y);
        rotate_pair(x, y, cos[i], sin[i]);
        words[at] = pack2<S.dtype>(x, y);
      }
    }
  }
  ATTNFORGE_DEVICE static void load_table(const float* table, Row& to) {
#pragma unroll
    for (int i = 0; i < kVector; i += 4) {
      const float4 x = *reinterpret_cast<const float4*>(table + i);
      to[i] = x.x, to[i + 1] = x.y, to[i + 2] = x.z, to[i + 3] = x.w;
    }
  }

  /// A new token: which of the new rows it is, and where it belongs in the cache.
  struct Token {
    int sequence = 0;     // of packed rows unknown before locate()
    int of_sequence = 0;  // which of its new rows
    int row = 0;          // of the tensors with the new rows
    int used = 0;         // rows that its sequence has
    u32 position = 0;
    bool written = false;  // whether the cache has that position
    int cache_batch = 0, cache_row = 0;
    bool in_cache = false;  // and a page for it

    /// Its length is loaded at once, if the sequence is known without a look at others.
    ATTNFORGE_DEVICE Token(const AppendParams& p, u32 token) {
      if (p.cu_seqlens != nullptr) {
        row = int(token);
        return;
      }
      const u32 rows = u32(p.seqlen_new > 0 ? p.seqlen_new : 1);
      sequence = int(token / rows);
      row = of_sequence = int(token - u32(sequence) * rows);
      used = length(p);
    }
    /// Finds the sequence of packed rows, and the page. A whole warp calls this.
    ATTNFORGE_DEVICE void locate(const AppendParams& p) {
      if (p.cu_seqlens != nullptr) {
        sequence = sequence_of(p, row);
        of_sequence = row - p.cu_seqlens[sequence];
        used = length(p);
      }
      position = u32(used) + u32(of_sequence);
      written = sequence < p.batch && used >= 0 && position < u32(p.seqlen_kv);
      cache_batch = sequence, cache_row = int(position);
      in_cache = written;
      if (p.table == nullptr || !written) return;
      const u32 page = position / u32(p.page_size);
      cache_row = int(position - page * u32(p.page_size));
      cache_batch = p.table[sequence * p.table_stride + page];
      in_cache = cache_batch >= 0 && cache_batch < p.num_pages;
    }
    ATTNFORGE_DEVICE int length(const AppendParams& p) const {
      return p.used == nullptr || sequence >= p.batch ? 0 : p.used[sequence];
    }

    /// The number of sequences that end before the token. A whole warp calls this; its reads do not
    /// wait for one another.
    ATTNFORGE_DEVICE static int sequence_of(const AppendParams& p, int token) {
      int ended = 0;
#pragma unroll 4
      for (int first = 0; first < p.batch; first += 32) {
        const int i = first + int(threadIdx.x) % 32;
        ended += __popc(__ballot_sync(~0u, i < p.batch && p.cu_seqlens[i + 1] <= token));
      }
      return ended;
    }
  };

  /// What a warp moves at once: of a lane one slice of the rows of `rows` heads.
  struct Strip {
    static constexpr int kDepth = 1 << S.most_depth_log2();
    static constexpr bool kPairs = S.in_pairs(kMovedK) || S.in_pairs(kMovedV);
    static constexpr int kVectors = kDepth * (kPairs ? 2 : 1);

    int moved;  // kMovedK, kMovedV or kMovedQ
    int head;   // of the first row
    int rows;   // 0 to kDepth
    RowSlice slice;
    Vector a[kDepth], b[kDepth];

    /// The i-th of a token's. False: it has fewer.
    ATTNFORGE_DEVICE bool set(const AppendParams& p, int i) {
      const int* const ends = p.work.strips_end;
      moved = i < ends[kMovedK] ? kMovedK : i < ends[kMovedV] ? kMovedV : kMovedQ;
      const int of_tensor = moved == kMovedK ? i : i - ends[moved - 1];
      const int group = of_v_or_k(of_tensor / S.columns(kMovedV), of_tensor / S.columns(kMovedK));
      const int column = of_tensor - group * of_v_or_k(S.columns(kMovedV), S.columns(kMovedK));

      const int lane = int(threadIdx.x) % 32;
      const int beside = of_v_or_k(lane / S.lanes(kMovedV), lane / S.lanes(kMovedK));
      const int of_row = column * 32 + lane -
                         beside * of_v_or_k(S.lanes(kMovedV), S.lanes(kMovedK));
      const int heads = moved == kMovedQ ? p.num_heads_q : p.num_heads_kv;
      head = (group << p.work.depth_log2) * heads_at_once() + beside;
      const bool idle = beside >= heads_at_once() ||
                        of_row >= of_v_or_k(S.slices(kMovedV), S.slices(kMovedK));
      const int left = of_v_or_k(ceil_div(heads - head, S.heads_at_once(kMovedV)),
                                 ceil_div(heads - head, S.heads_at_once(kMovedK)));
      rows = idle ? 0 : min(left, 1 << p.work.depth_log2);
      if constexpr (S.in_pairs(kMovedV))
        slice = moved == kMovedV ? S.still_slice(kMovedV, of_row) : S.slice(of_row);
      else
        slice = moved == kMovedV ? RowSlice{of_row * kVector, -1, -1} : S.slice(of_row);
      return i < ends[kMovedQ];
    }
    /// Q is as K.
    ATTNFORGE_DEVICE int of_v_or_k(int of_v, int of_k) const {
      return moved == kMovedV ? of_v : of_k;
    }
    ATTNFORGE_DEVICE int heads_at_once() const {
      return of_v_or_k(S.heads_at_once(kMovedV), S.heads_at_once(kMovedK));
    }

    ATTNFORGE_DEVICE char* first_part(const TensorRef& tensor, int outer, int row) const {
      return static_cast<char*>(tensor.data) +
             (outer * tensor.stride_batch + row * tensor.stride_row + head * tensor.stride_head +
              slice.first) *
                 kBytes;
    }
    ATTNFORGE_DEVICE i64 bytes_apart(const TensorRef& tensor) const {
      return tensor.stride_head * (heads_at_once() * kBytes);
    }
    ATTNFORGE_DEVICE int second_vector() const { return (slice.second - slice.first) * kBytes; }

    /// Calls visit(i, second) for the i-th row's slice, and its second vector.
    template <class Visit>
    ATTNFORGE_DEVICE void for_each_vector(const Visit& visit) const {
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (i >= rows) continue;
        visit(i, false);
        if (kPairs && slice.second >= 0) visit(i, true);
      }
    }
    /// for_each_vector() with where each lies, from `first` on with rows `apart`.
    template <class Visit>
    ATTNFORGE_DEVICE void for_each_place(char* first, i64 apart, const Visit& visit) const {
      for_each_vector([&](int i, bool second) {
        visit(first + i * apart + (second ? second_vector() : 0), i, second);
      });
    }
    template <class Visit>
    ATTNFORGE_DEVICE void for_each_new(const AppendParams& p, const Token& token,
                                       const Visit& visit) const {
      const TensorRef& tensor = p.from[moved];
      for_each_place(first_part(tensor, token.sequence, token.row), bytes_apart(tensor), visit);
    }
    ATTNFORGE_DEVICE void load(const AppendParams& p, const Token& token) {
      for_each_new(p, token, [&](const char* from, int i, bool second) {
        load_words<kAlignment>(from, second ? b[i] : a[i]);
      });
    }
    ATTNFORGE_DEVICE void ask(const AppendParams& p, const Token& token, Lanes* ahead) const {
      for_each_new(p, token, [&](const char* from, int i, bool second) {
        cp_async<4 * kWords>(smem_address(ahead[i + second * kDepth][threadIdx.x]), from);
      });
      cp_async_commit();
    }
    /// What was loaded.
    ATTNFORGE_DEVICE void take(const Lanes* ahead) {
      cp_async_wait<0>();
      for_each_vector([&](int i, bool second) {
        const Vector& from = ahead[i + second * kDepth][threadIdx.x];
        load_words<4 * kWords>(reinterpret_cast<const char*>(from), second ? b[i] : a[i]);
      });
    }
    /// All heads turn by the same angles.
    ATTNFORGE_DEVICE void turn(const AppendParams& p, const Token& token) {
      if (S.rope == kNoRope || slice.table < 0 || rows <= 0) return;
      Row cos, sin;
      const i64 at = i64(token.position) * S.pairs() + slice.table;
      load_table(p.cos + at, cos);
      load_table(p.sin + at, sin);
#pragma unroll
      for (int i = 0; i < kDepth; ++i) {
        if (S.rope == kRopeHalf) rotate_apart(a[i], b[i], cos, sin);
        if (S.rope == kRopeInterleaved) rotate_neighbours(a[i], b[i], cos, sin);
      }
    }
    ATTNFORGE_DEVICE void store(const AppendParams& p, const Token& token) const {
      const bool to_cache = moved != kMovedQ;
      if (to_cache && !token.in_cache) return;
      if constexpr (is_low_bit(S.dtype_k)) {
        if (moved == kMovedK) return quantise<kMovedK>(p, token);
      }
      if constexpr (is_low_bit(S.dtype_v)) {
        if (moved == kMovedV) return quantise<kMovedV>(p, token);
      }
      const TensorRef& tensor = p.to[moved];
      char* to = first_part(tensor, to_cache ? token.cache_batch : token.sequence,
                            to_cache ? token.cache_row : token.row);
      for_each_place(to, bytes_apart(tensor), [&](char* at, int i, bool second) {
        store_words<kAlignment>(at, second ? b[i] : a[i]);
      });
    }
    /// store() of K or of V whose cache has fewer bits.
    template <int kMoved>
    ATTNFORGE_DEVICE void quantise(const AppendParams& p, const Token& token) const {
      using Numbers = Quantised<S, kMoved>;
      const TensorRef &tensor = p.to[kMoved], &of_rows = p.scales[kMoved];
      constexpr int kApart = S.heads_at_once(kMoved);
      static_assert(kDepth == 2, "scales of two rows are found together");
      char* const row = static_cast<char*>(tensor.data) +
                        bytes_of(Numbers::kCode, token.cache_batch * tensor.stride_batch +
                                                     token.cache_row * tensor.stride_row +
                                                     head * tensor.stride_head);
      const i64 apart = bytes_of(Numbers::kCode, kApart * tensor.stride_head);
      float* scale = static_cast<float*>(of_rows.data) + head * of_rows.stride_head;
      const bool pair = S.in_pairs(kMoved) && slice.second >= 0;
      Scale scales[kDepth][2];
      if constexpr (Numbers::kComputed) {
        scale += token.cache_batch * of_rows.stride_batch + token.cache_row * of_rows.stride_row;
        typename Numbers::Largest largest[kDepth][2];
        unrolled<kDepth>([&](int i) {
          if (i < rows) largest[i][0].add(a[i]);
          if (i < rows && pair) largest[i][1].add(b[i]);
        });
        Numbers::find_scales(slice, largest, scales, [&](int i, int group, const Scale& found) {
          if (i < rows)
            Numbers::store_scale(scale + i * kApart * of_rows.stride_head, group, found);
        });
      } else if constexpr (S.kv_scale != kNoScale) {
        scale += token.sequence * of_rows.stride_batch;
        unrolled<kDepth>([&](int i) {
          if (i < rows)
            scales[i][0] = scales[i][1] = Scale(scale[i * kApart * of_rows.stride_head]);
        });
      }
      unrolled<kDepth>([&](int i) {
        if (i >= rows) return;
        Numbers::template store<kAlignment>(row + i * apart, slice.first, a[i], scales[i][0]);
        if (pair)
          Numbers::template store<kAlignment>(row + i * apart, slice.second, b[i], scales[i][1]);
      });
    }
  };

  /// The i-th strip, if the token has one.
  ATTNFORGE_DEVICE static void ask_for(const AppendParams& p, const Token& token, int i,
                                       Lanes* ahead) {
    if constexpr (kAhead) {
      Strip strip;
      if (strip.set(p, i)) strip.ask(p, token, ahead);
    }
  }
  ATTNFORGE_DEVICE static void come_by(const AppendParams& p, const Token& token, Strip& strip,
                                       const Lanes* ahead) {
    if constexpr (kAhead)
      strip.take(ahead);
    else
      strip.load(p, token);
  }

  // ---- lengths afterwards ----

  ATTNFORGE_DEVICE static int length_after(const AppendParams& p, int used, int added) {
    const i64 after = i64(used) + added;
    return int(after < p.seqlen_kv ? after : i64(p.seqlen_kv));
  }
  /// The warp after those that move rows does this, and they do not wait for it: where all other
  /// blocks have read their lengths already, the old ones are not read any more.
  ATTNFORGE_DEVICE static void keep_lengths(const AppendParams& p) {
    __syncthreads();  // this block has read all that it needs
    const int lane = int(threadIdx.x) % 32;
    int last = 0;
    if (lane == 0) {
      __threadfence();
      last = atomicInc(&p.counters->arrived, gridDim.x - 1) == gridDim.x - 1;  // then 0 again
      __threadfence();
    }
    if (__shfl_sync(~0u, last, 0) == 0) return;
    for (int i = lane; i < p.batch; i += 32) {
      const int used = p.used == nullptr ? 0 : p.used[i];
      const int added = p.cu_seqlens == nullptr ? p.seqlen_new
                                                : p.cu_seqlens[i + 1] - p.cu_seqlens[i];
      p.used_after[i] = length_after(p, used, added);
    }
    if (lane == 0) atomicAdd(&p.counters->runs, 1u);
  }

  /// The grid has a block for each of the work, unless that were very many.
  ATTNFORGE_DEVICE static void run(const AppendParams& p) {
    const int thread = int(threadIdx.x), warp = thread / 32;
    if (thread >= AppendShape::kThreads) return keep_lengths(p);
    const int warps = 1 << p.work.warps_log2, warp_of_token = warp & (warps - 1);
    const bool moves_lengths = p.used_after != nullptr, counts = p.counters != nullptr;
    __shared__ __align__(16) Lanes ahead[kAhead ? Strip::kVectors : 1];
    for (u32 block = blockIdx.x; block < p.work.blocks; block += gridDim.x) {
      // ---- 1. Two strips of new rows are loaded before it is known where they go ----
      const u32 number = block * u32(p.work.tokens_of_block()) + (u32(warp) >> p.work.warps_log2);
      const bool there = number < u32(p.tokens);
      Token token(p, number);
      Strip strip;
      int i = warp_of_token;
      const bool more = there && strip.set(p, i);
      if (more) {
        strip.load(p, token);
        ask_for(p, token, i + warps, ahead);
      }

      // ---- 2. Lengths and page ----
      if (there) token.locate(p);
      if (counts && block + gridDim.x >= p.work.blocks) __syncthreads();
      if (moves_lengths && !counts) {
        __syncthreads();
        if (there && thread % 32 == 0 && warp_of_token == 0 && token.of_sequence == 0)
          p.used_after[token.sequence] = length_after(p, token.used, p.seqlen_new);
      }

      // ---- 3. Rows go there, and those of the warp's other strips after them ----
      if (!more) continue;
      if (!token.written) {  // what was loaded is not written
        if constexpr (kAhead) cp_async_wait<0>();
        continue;
      }
      for (;;) {
        strip.turn(p, token);
        strip.store(p, token);
        if (!strip.set(p, i += warps)) break;
        come_by(p, token, strip, ahead);
        ask_for(p, token, i + warps, ahead);
      }
    }
  }
};

template <AppendRowsConfig kConfig>
struct AppendRows : AppendKv<kConfig.append_shape(), kConfig.alignment> {};

}  // namespace attnforge
