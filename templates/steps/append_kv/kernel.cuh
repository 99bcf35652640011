// kernel.cuh - writes new rows of K and V into caches, rotated by their positions where asked, and
// rotates the queries of these positions with them.
#pragma once

#include "base.cuh"
#include "params_append.h"
#include "params_fwd.h"
#include "ptx/convert.cuh"
#include "shape.h"
#include "tile/rotate_pair.cuh"
#include "tile/words.cuh"

namespace attnforge {

/// kAlignment: bytes of all pointers and strides but those of the tables, which are aligned to 16.
template <AppendShape S, int kAlignment>
struct AppendKv {
  static constexpr int kBytes = element_bytes(S.dtype);
  static constexpr int kVector = S.vector(), kWords = kVector * kBytes / 4;
  using Vector = u32[kWords];
  using Row = float[kVector];  // of a table

  /// A new token: which sequence's, which of the new rows, and where it belongs in the cache.
  struct Token {
    int sequence;
    int row;  // of the tensors with the new rows
    u32 position;
    bool written;  // whether the cache has that position

    ATTNFORGE_DEVICE Token(const AppendParams& p, u32 token) {
      int of_sequence;  // which of its new rows it is
      if (p.cu_seqlens != nullptr) {
        sequence = sequence_of(p, int(token));
        of_sequence = int(token) - p.cu_seqlens[sequence];
        row = int(token);
      } else {
        const u32 rows = u32(p.seqlen_new > 0 ? p.seqlen_new : 1);
        sequence = int(token / rows);
        row = of_sequence = int(token - u32(sequence) * rows);
      }
      const int used = p.used == nullptr || sequence >= p.batch ? 0 : p.used[sequence];
      position = u32(used) + u32(of_sequence);
      written = sequence < p.batch && used >= 0 && position < u32(p.seqlen_kv);
    }

    /// As many as end before the token. By a whole warp, whose reads do not wait for one another.
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

  /// What a thread moves: a part of a row, and where its row lies.
  struct Move {
    TensorRef from, to;
    int head;
    RowPart part;
    bool to_cache;

    /// Parts of a token are ordered k, v, q, and in each of them by heads. False: there are fewer.
    ATTNFORGE_DEVICE bool set(const AppendParams& p, int i) {
      const int of_k = p.num_heads_kv * S.parts(), of_v = p.num_heads_kv * S.parts_v();
      const bool is_v = i >= of_k && i < of_k + of_v, is_q = i >= of_k + of_v;
      if (is_v) {
        i -= of_k;
        head = i / S.parts_v();
        part = {(i - head * S.parts_v()) * kVector, -1, -1};
      } else {
        if (is_q) i -= of_k + of_v;
        head = i / S.parts();
        part = S.part(i - head * S.parts());
      }
      from = is_q ? p.q : is_v ? p.v : p.k;
      to = is_q ? p.rotated_q : is_v ? p.v_cache : p.k_cache;
      to_cache = !is_q;
      return !is_q || head < p.num_heads_q;
    }
    ATTNFORGE_DEVICE char* row(const TensorRef& tensor, i64 outer, i64 row) const {
      return static_cast<char*>(tensor.data) +
             (outer * tensor.stride_batch + row * tensor.stride_row + head * tensor.stride_head) *
                 kBytes;
    }
  };

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

  /// One part of a token's rows. What it reads is asked for before the page is.
  ATTNFORGE_DEVICE static void move(const AppendParams& p, const Token& token, int i) {
    Move move;
    if (!move.set(p, i)) return;
    const RowPart part = move.part;
    const char* const from = move.row(move.from, token.sequence, token.row);
    Vector a, b;
    Row cos, sin;
    load_words<kAlignment>(from + part.first * kBytes, a);
    if (S.rope != kNoRope && part.second >= 0)
      load_words<kAlignment>(from + part.second * kBytes, b);
    if (S.rope != kNoRope && part.table >= 0) {
      const i64 at = i64(token.position) * S.pairs() + part.table;
      load_table(p.cos + at, cos);
      load_table(p.sin + at, sin);
    }

    i64 outer = token.sequence, row = move.to_cache ? i64(token.position) : token.row;
    if (move.to_cache && p.table != nullptr) {
      const u32 page = token.position / u32(p.page_size);
      row = token.position - page * u32(p.page_size);
      outer = p.table[token.sequence * p.table_stride + page];
      if (outer < 0 || outer >= p.num_pages) return;
    }

    if (S.rope == kRopeHalf && part.table >= 0) rotate_apart(a, b, cos, sin);
    if (S.rope == kRopeInterleaved && part.table >= 0) rotate_neighbours(a, b, cos, sin);
    char* const to = move.row(move.to, outer, row);
    store_words<kAlignment>(to + part.first * kBytes, a);
    if (S.rope != kNoRope && part.second >= 0)
      store_words<kAlignment>(to + part.second * kBytes, b);
  }

  /// Whether all other blocks have read their lengths already: the answer is thread 0's. By all
  /// threads of a block, once each has read all that it needs.
  ATTNFORGE_DEVICE static bool arrives_last(const AppendParams& p) {
    __syncthreads();
    if (threadIdx.x != 0) return false;
    __threadfence();
    return atomicAdd(&p.counters->arrived, 1u) == gridDim.x - 1;
  }
  /// By the first warp of the block that arrived last: no one reads the old lengths any more.
  ATTNFORGE_DEVICE static void write_lengths(const AppendParams& p) {
    __threadfence();
    for (int i = int(threadIdx.x); i < p.batch; i += 32) {
      const int used = p.used == nullptr ? 0 : p.used[i];
      const int added = p.cu_seqlens == nullptr ? p.seqlen_new
                                                : p.cu_seqlens[i + 1] - p.cu_seqlens[i];
      const i64 after = i64(used) + added;
      p.used_after[i] = int(after < p.seqlen_kv ? after : i64(p.seqlen_kv));
    }
    if (threadIdx.x != 0) return;
    p.counters->arrived = 0;
    __threadfence();
    atomicAdd(&p.counters->runs, 1u);
  }

  /// A warp takes 32 parts of a token. The grid has a block for each kThreads / 32 of these, unless
  /// that were very many.
  ATTNFORGE_DEVICE static void run(const AppendParams& p) {
    const u32 warps_of_token = u32(S.warps_of_token(p.num_heads_kv, p.num_heads_q));
    const u32 thread = threadIdx.x;
    bool last = false;
    for (u32 block = blockIdx.x; block < p.blocks; block += gridDim.x) {
      const u32 warp = block * (S.kThreads / 32) + thread / 32;
      const u32 number = warp / warps_of_token;
      const int part = int(warp - number * warps_of_token) * 32 + int(thread % 32);
      const bool there = number < u32(p.tokens);
      const Token token(p, number);
      if (p.used_after != nullptr && block + gridDim.x >= p.blocks) last = arrives_last(p);
      if (there && token.written) move(p, token, part);
    }
    if (p.used_after == nullptr || thread >= 32) return;
    if (__shfl_sync(~0u, int(last), 0) != 0) write_lengths(p);
  }
};

}  // namespace attnforge
