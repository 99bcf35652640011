// params.h - the argument of the step that widens k and v.
#pragma once

#include "base_params.h"

namespace attnforge {

/// What of a run the step reads, and how it shares out its work: a block has some keys of a
/// sequence, of all heads.
struct WideningWork {
  static constexpr int kThreads = 256;  // of a block
  static constexpr int kColumns = 8;    // of a row, that a thread takes at once

  TensorRef k, v;
  TensorRef k_scale, v_scale;
  const int* lengths;  // of keys; null: all
  const int* table;    // of pages; unread without
  i64 table_stride;
  int num_pages;
  int num_heads_kv, seqlen_kv;
  int block_keys, blocks;  // keys of a block, and blocks of a sequence
  // Rows from a sequence to the next one in the workspace, where packed ones lie as in the run; and
  // its pages there, one after another, where there are any.
  int rows, own_pages;
};
/// Contiguous [rows of all sequences, heads, dim] in q's dtype; null: the kernel reads the run's.
struct WideningParams {
  WideningWork work;
  void* k;
  void* v;
  int* own_table;  // [batch, own_pages]; null: there are none
};

}  // namespace attnforge
