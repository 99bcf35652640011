// wide_indexes.cuh - what a text sees where its arrays have 2^31 elements or more: positions,
// lengths, numbers and elements of int are 64 bits wide, so that no index is computed in 32.
#pragma once

#include "parts/user_code/code.cuh"

namespace attnforge {

/// An array of ints.
struct WideArray : UserArray<int> {
  using UserArray<int>::UserArray;
  template <class Index>
  ATTNFORGE_DEVICE i64 operator[](Index i) const {
    return UserArray<int>::operator[](i);
  }
};

// CUDA's take two of one type.
using ::max;
using ::min;
ATTNFORGE_DEVICE i64 min(i64 a, int b) { return ::min(a, i64(b)); }
ATTNFORGE_DEVICE i64 min(int a, i64 b) { return ::min(i64(a), b); }
ATTNFORGE_DEVICE i64 max(i64 a, int b) { return ::max(a, i64(b)); }
ATTNFORGE_DEVICE i64 max(int a, i64 b) { return ::max(i64(a), b); }

}  // namespace attnforge
