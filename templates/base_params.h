// base_params.h - the parts of a forward kernel's one argument. Compiled by g++ (launch, bind) and
// NVRTC (kernel), so they cannot disagree.
#pragma once

#include "base.cuh"

namespace attnforge {

/// A tensor in device memory; strides in elements, the last dimension contiguous.
struct TensorRef {
  void* data;
  i64 stride_batch;
  i64 stride_row;  // between sequence positions
  i64 stride_head;
};

/// Shapes: q [batch, seqlen_q, num_heads_q, head_dim], k [batch, seqlen_kv, num_heads_kv,
/// head_dim], v [batch, seqlen_kv, num_heads_kv, head_dim_v], o [batch, seqlen_q, num_heads_q,
/// head_dim_v], in any order of strides.
struct FwdParams {
  TensorRef q, k, v, o;
  float* lse;  // [batch, num_heads_q, seqlen_q], natural log; unread unless the config has lse=1
  i64 lse_stride_batch;
  i64 lse_stride_head;
  int batch;
  int num_heads_q;
  int num_heads_kv;
  int seqlen_q;
  int seqlen_kv;
  int window_left;   // keys before the query's position that it sees; kOpenWindow: all
  int window_right;  // keys after it
  float softmax_scale;
  float softcap_to_x;  // softmax_scale / softcap; 0: no soft cap
};

/// A row of queries, for every head of its sequence.
struct ListedRow {
  int batch;
  int query;
};

/// A tensor's description for TMA: what cuTensorMapEncodeTiled fills in.
struct alignas(64) TensorMap {
  u64 words[16];
};

/// Larger than any length, small enough that position + kOpenWindow does not overflow.
inline constexpr int kOpenWindow = 1 << 30;

/// The order in which blocks, which start by their index, take query tiles (tile/tile_order.cuh).
/// Heads are taken in groups whose K and V fit L2 together. In a group all heads do their last
/// query tile first: under causal masks it is the heaviest, and the light ones fill the end. With
/// heads_per_group 1 a head is over before the next begins; with all heads there is one group.
struct TileOrder {
  int m_blocks;  // query tiles of a head
  int heads;     // of all sequences
  int heads_per_group;
  int heavy_last;  // 1: the last query tile is the heaviest, and comes first
};

/// Rows before row 0 with which the query tiles of a causal kernel, of block_m rows, may begin. The
/// last tile visits the most keys: the one that is not full is better the first. But whole
/// fragments of 64 rows move, and row r's last key, r + diagonal, stays where tiles of keys end as
/// seldom as it can: it would cost each tile more than one that is not full does.
ATTNFORGE_CONSTEXPR int early_rows(int rows, int diagonal, int block_m) {
  const int missing = (block_m - rows % block_m) % block_m;
  const int early = missing - ((missing - diagonal) & 63);
  return early < 0 ? 0 : early;
}

/// The argument of a kernel that needs nothing more than its query tiles in an order.
struct FwdTiledParams {
  FwdParams fwd;
  TileOrder order;  // a head is a K/V head when heads are packed
};

}  // namespace attnforge
