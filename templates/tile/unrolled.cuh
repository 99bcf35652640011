// unrolled.cuh - loops over registers, whose indexes must be known when a kernel is compiled.
#pragma once

#include "base.cuh"

namespace attnforge {

/// Calls body(i) for all i < kCount, as code of its own each.
template <int kCount, class Body>
ATTNFORGE_DEVICE void unrolled(const Body& body) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) body(i);
}
/// body(i, j), the last one fastest.
template <int kOuter, int kInner, class Body>
ATTNFORGE_DEVICE void unrolled(const Body& body) {
#pragma unroll
  for (int i = 0; i < kOuter; ++i)
#pragma unroll
    for (int j = 0; j < kInner; ++j) body(i, j);
}
template <int kOuter, int kMiddle, int kInner, class Body>
ATTNFORGE_DEVICE void unrolled(const Body& body) {
#pragma unroll
  for (int i = 0; i < kOuter; ++i) unrolled<kMiddle, kInner>([&](int j, int k) { body(i, j, k); });
}

/// Sets all numbers of an array, of any dimensions, to x.
ATTNFORGE_DEVICE void fill(float& to, float x) { to = x; }
template <class T, int kCount>
ATTNFORGE_DEVICE void fill(T (&to)[kCount], float x) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) fill(to[i], x);
}

}  // namespace attnforge
