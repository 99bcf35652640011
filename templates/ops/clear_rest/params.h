// params.h - the argument of the kernel that clears rows after packed sequences. Compiled by g++
// (launch) and NVRTC (kernel).
#pragma once

#include "base_params.h"

namespace attnforge {

/// As attnforge_rest (attnforge/c_tools.h).
struct RowsToClear {
  void* data;  // [pieces, rows, row_bytes]
  const int* begin;
  i64 rows, row_bytes, pieces;
};

inline constexpr int kMostToClear = 8;  // arrays of a launch

struct ClearRestParams {
  RowsToClear arrays[kMostToClear];
  int count;
};

}  // namespace attnforge
