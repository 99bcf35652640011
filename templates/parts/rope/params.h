// params.h - the tables of the rotary embedding, and the argument of the step that rotates q and k.
#pragma once

#include "base_params.h"

namespace attnforge {

/// Tables of the rotary embedding, [rows, rope_dim / 2] each: row k_offset + j is key j's, row
/// q_offset + i query i's. Unread unless the shape has a rope.
struct RopeParams {
  const float* cos;
  const float* sin;
  int q_offset;
  int k_offset;
};

/// In the argument of a kernel that rotates by itself, after the family's own.
struct alignas(16) RopeParamsOfPart : RopeParams {
  int unused[2];
};

/// The argument of a kernel whose own is a Params.
template <class Params>
struct WithRope : Params {
  RopeParamsOfPart rope;
};

/// How the step shares out its work. A thread rotates, or copies, two vectors in each of kHeads
/// heads of a token, so that it reads its part of the tables once.
struct RotationWork {
  static constexpr int kThreads = 256;  // of a block
  static constexpr int kHeads = 4;

  int dtype;     // of q and k
  int head_dim;  // as rope_dim, a multiple of 8
  int rope_dim;

  ATTNFORGE_CONSTEXPR int pairs() const { return rope_dim / 2; }
  /// Elements of a vector: 16 bytes, or 8 where these would not end with the pairs.
  ATTNFORGE_CONSTEXPR int vector() const { return dtype != kFp32 && pairs() % 8 == 0 ? 8 : 4; }
  // Threads of a token's kHeads heads: those that rotate, and all.
  ATTNFORGE_CONSTEXPR int turns() const { return pairs() / vector(); }
  ATTNFORGE_CONSTEXPR int items() const {
    return turns() + ceil_div(head_dim - rope_dim, 2 * vector());
  }
  /// Tokens of a block, each with kHeads heads.
  ATTNFORGE_CONSTEXPR int tokens() const { return kThreads / items(); }
};

/// Blocks [0, q_blocks) take q, the others k. Where fwd says that q and k lie is where they are
/// read from; rotated_q and rotated_k are contiguous [batch, seqlen, heads, head_dim] in their
/// dtype.
struct RotationParams {
  FwdParams fwd;
  RopeParams rope;
  void* rotated_q;
  void* rotated_k;
  int q_blocks;
};

}  // namespace attnforge
