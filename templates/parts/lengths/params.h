// params.h - what a kernel needs to know of sequences whose lengths only the device knows.
#pragma once

#include "base_params.h"

namespace attnforge {

/// A query tile of one head: rows m_block * block_m and on of a sequence.
struct QueuedTile {
  int sequence;
  int m_block;
};

/// The query tiles of one head of all sequences, longest first, as parts/lengths/step_queue writes
/// them for the step after it. In the workspace: 16 + 8 * (tokens_q * packed heads / block_m +
/// batch) bytes.
struct alignas(16) TileQueue {
  int tiles;
  unsigned lists_done;  // of the step before, where that makes this (parts/key_lists/step_lists)
  int unused[2];
  // Followed by as many QueuedTiles.
};

/// In the argument of a kernel, after the family's own.
struct alignas(16) LengthsParams {
  // Null with fixed lengths. Packed: [batch + 1], where each sequence begins in [tokens, heads,
  // dim]; the last is the end. Used: [batch], how many rows of each sequence count; null: all
  // seqlen.
  const int* q;
  const int* kv;
  TileQueue* work;
  // Keys of a group, about: the queue takes sequences in groups whose K and V stay in L2 together;
  // 0: all in one.
  int keys_per_group;
  int most_tiles;  // that fit the queue, or the list of a backward kernel (backward/scratch.cuh)
};

/// The argument of a kernel whose family's own is a Params.
template <class Params>
struct WithLengths : Params {
  LengthsParams lengths;
};

/// The own argument of a step before a kernel: what the problem's parts need comes after it.
struct StepParams {
  FwdParams fwd;
};

}  // namespace attnforge
