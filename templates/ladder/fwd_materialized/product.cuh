// product.cuh - a tile of a matrix product, by tensor cores or in fp32: what both ways look like.
#pragma once

#include "base.cuh"
#include "ladder/fwd_materialized/config.h"

namespace attnforge {

/// A matrix in global memory as a product reads it: from its first element, so many rows and
/// chunks of 8 elements are there, and the rest counts as zeros.
struct MatrixSource {
  const char* from;
  i64 pitch_bytes;
  int rows;
  int chunks;
};

/// block_m x kColumns elements of A B, over the depth in slices. A is [rows][depth]; B is
/// [columns][depth] (kDepthIsRow false: Q K^T) or [depth][columns] (true: P V).
///   run<kACopyBytes>(shared_memory, a, b, slices): the product; kACopyBytes is the alignment of A
///   for_each_pair(visit): visit(row, column, x, y) with the elements in columns column, column + 1
template <FwdMaterializedConfig C, int kColumns, bool kDepthIsRow,
          bool kTensorCores = C.tensor_cores()>
struct Product;

}  // namespace attnforge
