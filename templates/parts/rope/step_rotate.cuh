// step_rotate.cuh - the step before a kernel that knows nothing of the rotary embedding (Su et al.
// 2021): writes q and k, their leading rope_dim elements rotated in fp32, rounded to their dtype,
// next to each other into the workspace.
#pragma once

#include "parts/rope/params.h"
#include "parts/rope/rotate_pair.cuh"
#include "ptx/convert.cuh"
#include "shape.h"
#include "tile/elements.cuh"

namespace attnforge {

/// kRope: which elements turn together. kAlignment: bytes of the pointers and strides of q and k.
template <RotationWork W, int kRope, int kAlignment>
struct Rotate {
  static constexpr int kDtype = W.dtype, kHeadDim = W.head_dim;
  static constexpr int kVector = W.vector(), kPairs = W.pairs(), kHeads = W.kHeads;
  static constexpr int kBytes = kVector * element_bytes(kDtype);  // of a vector
  using Vector = float[kVector];

  /// Where a thread's two vectors begin in a row: with kRopeHalf the first elements of its pairs
  /// and the second, else neighbours.
  struct Columns {
    int first, second;

    ATTNFORGE_DEVICE explicit Columns(int item) {
      const bool apart = kRope == kRopeHalf && item < W.turns();
      first = apart              ? item * kVector
              : item < W.turns() ? item * 2 * kVector
                                 : W.rope_dim + (item - W.turns()) * 2 * kVector;
      second = first + (apart ? kPairs : kVector);
    }
    /// What is copied may end with the first.
    ATTNFORGE_DEVICE bool has_second() const {
      return (kHeadDim - W.rope_dim) % (2 * kVector) == 0 || second < kHeadDim;
    }
  };

  ATTNFORGE_DEVICE static void rotate(Vector& a, Vector& b, const Vector& cos, const Vector& sin) {
#pragma unroll
    for (int i = 0; i < kVector; ++i) {
      if constexpr (kRope == kRopeHalf) {
        rotate_pair(a[i], b[i], cos[i], sin[i]);
      } else {
        Vector& pair = i < kVector / 2 ? a : b;
        const int at = i % (kVector / 2) * 2;
        rotate_pair(pair[at], pair[at + 1], cos[i], sin[i]);
      }
    }
  }

  ATTNFORGE_DEVICE static void store(char* to, const Vector& x) {
    u32 words[kBytes / 4];
#pragma unroll
    for (int w = 0; w < kBytes / 4; ++w) {
      if constexpr (kDtype == kFp32)
        words[w] = __float_as_uint(x[w]);
      else
        words[w] = pack2<kDtype>(x[2 * w], x[2 * w + 1]);
    }
    if constexpr (kBytes == 16)
      *reinterpret_cast<uint4*>(to) = make_uint4(words[0], words[1], words[2], words[3]);
    else
      *reinterpret_cast<uint2*>(to) = make_uint2(words[0], words[1]);
  }

  /// kHeads heads from `head` on of one token of `from`, whose heads are next to each other in
  /// `to`.
  ATTNFORGE_DEVICE static void rotate_heads(const RopeParams& rope, const char* from,
                                            i64 stride_head, char* to, int head, int heads,
                                            int table_row, int item) {
    const Columns at(item);
    const bool turns = W.rope_dim == kHeadDim || item < W.turns();
    // All is read before anything is written, so that the reads are under way together.
    Vector a[kHeads], b[kHeads], cos, sin;
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (head + h >= heads) continue;
      const char* row = from + (head + h) * stride_head * element_bytes(kDtype);
      load_floats<kDtype, kAlignment>(row + at.first * element_bytes(kDtype), a[h]);
      if (turns || at.has_second())
        load_floats<kDtype, kAlignment>(row + at.second * element_bytes(kDtype), b[h]);
    }
    if (turns) {
      const i64 of_tables = i64(table_row) * kPairs + item * kVector;
      load_floats<kFp32, 16>(reinterpret_cast<const char*>(rope.cos + of_tables), cos);
      load_floats<kFp32, 16>(reinterpret_cast<const char*>(rope.sin + of_tables), sin);
    }
#pragma unroll
    for (int h = 0; h < kHeads; ++h) {
      if (head + h >= heads) continue;
      if (turns) rotate(a[h], b[h], cos, sin);
      char* row = to + i64(head + h) * kHeadDim * element_bytes(kDtype);
      store(row + at.first * element_bytes(kDtype), a[h]);
      if (turns || at.has_second()) store(row + at.second * element_bytes(kDtype), b[h]);
    }
  }

  /// A block takes W.tokens() times kHeads heads of q or of k.
  ATTNFORGE_DEVICE static void run(const RotationParams& params) {
    const FwdParams& p = params.fwd;
    const bool is_q = int(blockIdx.x) < params.q_blocks;
    const TensorRef from = is_q ? p.q : p.k;
    char* const to = static_cast<char*>(is_q ? params.rotated_q : params.rotated_k);
    const u32 heads = is_q ? p.num_heads_q : p.num_heads_kv, rows = is_q ? p.seqlen_q : p.seqlen_kv;
    const int first_row = is_q ? params.rope.q_offset : params.rope.k_offset;

    const u32 block = blockIdx.x - (is_q ? 0 : params.q_blocks);
    const int thread = int(threadIdx.x), item = thread % W.items();
    const u32 groups = (heads + kHeads - 1) / kHeads;
    const u32 slot = block * W.tokens() + thread / W.items();  // a token's group of heads
    const u32 token = slot / groups, head = slot % groups * kHeads;
    const u32 sequence = token / rows, row = token % rows;
    if (thread / W.items() >= W.tokens() || sequence >= u32(p.batch)) return;
    const char* const source = static_cast<const char*>(from.data) +
                               (sequence * from.stride_batch + row * from.stride_row) *
                                   element_bytes(kDtype);
    rotate_heads(params.rope, source, from.stride_head,
                 to + i64(token) * heads * kHeadDim * element_bytes(kDtype), int(head), int(heads),
                 first_row + int(row), item);
  }
};

}  // namespace attnforge
