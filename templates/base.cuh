// base.cuh - integer types and the few words that g++ and NVRTC both need; instead of <cstdint>.
#pragma once

#ifdef __CUDACC__
#define ATTNFORGE_CONSTEXPR __host__ __device__ constexpr
#define ATTNFORGE_DEVICE __device__ __forceinline__
#else
#define ATTNFORGE_CONSTEXPR constexpr
#endif

namespace attnforge {

using u8 = unsigned char;
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;
using i64 = long long;

/// Values of the `dtype` fields of configs. The same numbers as attnforge::DType.
inline constexpr int kFp32 = 0;
inline constexpr int kFp16 = 1;
inline constexpr int kBf16 = 2;
inline constexpr int kInt8 = 3, kInt4 = 4, kE4m3 = 5, kE5m2 = 6;  // of caches: fewer bits

/// The rows of attnforge::ElementFormat that kernels ask.
ATTNFORGE_CONSTEXPR int element_bits(int dtype) {
  return dtype == kFp32 ? 32 : dtype <= kBf16 ? 16 : dtype == kInt4 ? 4 : 8;
}
ATTNFORGE_CONSTEXPR bool is_low_bit(int dtype) { return dtype >= kInt8; }
/// Of an element of whole bytes.
ATTNFORGE_CONSTEXPR int element_bytes(int dtype) { return element_bits(dtype) / 8; }
/// Bytes of so many elements one after another: whole bytes, of which the last may not be full.
template <typename Count>
ATTNFORGE_CONSTEXPR Count bytes_of(int dtype, Count elements) {
  const int bits = element_bits(dtype);
  return bits % 8 == 0 ? elements * (bits / 8) : (elements * bits + 7) >> 3;
}
/// 16-byte chunks of a row of so many elements.
ATTNFORGE_CONSTEXPR int chunks_of(int dtype, int columns) {
  return (bytes_of(dtype, columns) + 15) / 16;
}
ATTNFORGE_CONSTEXPR int ceil_div(int a, int b) { return (a + b - 1) / b; }
/// a / b where neither is negative, which takes a GPU fewer instructions than numbers with signs.
ATTNFORGE_CONSTEXPR int quotient(int a, int b) {
  return static_cast<int>(static_cast<unsigned>(a) / static_cast<unsigned>(b));
}
ATTNFORGE_CONSTEXPR int round_up(int a, int b) { return ceil_div(a, b) * b; }
ATTNFORGE_CONSTEXPR int gcd(int a, int b) { return b == 0 ? a : gcd(b, a % b); }

}  // namespace attnforge
