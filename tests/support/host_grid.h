// host_grid.h - device code on threads of the host: for kernels that need no more of a GPU than
// warps, blocks, ballots and shuffles. Included after all headers of the host and before those of
// the device: words of CUDA are macros from here on, and assembly is left out.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/support/host_threads.h"

#define __CUDACC__
#define __host__
#define __device__
#define __forceinline__ inline
#define __shared__ static
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace attnforge::test {

struct Index {
  unsigned x = 0;
};
inline thread_local Index thread_index, block_index, grid_size;

/// What the lanes of a warp lay down for one another. Every other time in the same place: who
/// writes again has met all lanes since they read what is written over.
struct HostWarp {
  HostBarrier barrier{32};
  std::array<std::array<std::uint64_t, 32>, 2> values{};
  std::array<unsigned, 32> asked{};
};
inline thread_local HostWarp* own_warp = nullptr;
inline thread_local HostBarrier* own_block = nullptr;

/// Threads that take turns share what is thread_local: whoever waited finds its own again.
inline void wait_at(HostBarrier& barrier) {
  const Index thread = thread_index, block = block_index;
  HostWarp* const warp = own_warp;
  HostBarrier* const threads = own_block;
  barrier.arrive_and_wait();
  thread_index = thread, block_index = block, own_warp = warp, own_block = threads;
}

/// All lanes' values of x, seen by all until they ask again: every lane of the warp must come.
template <class Value>
const std::array<std::uint64_t, 32>& of_all_lanes(Value x) {
  const unsigned lane = thread_index.x % 32;
  HostWarp& warp = *own_warp;
  auto& all = warp.values[warp.asked[lane]++ % 2];
  all[lane] = static_cast<std::uint64_t>(x);
  wait_at(warp.barrier);
  return all;
}

/// Runs kernel() on `blocks` blocks, one after another, of `threads` threads.
template <class Kernel>
void run_on_host(unsigned blocks, unsigned threads, const Kernel& kernel) {
  std::vector<HostWarp> warps(threads / 32);
  HostBarrier block(threads), between(threads);
  run_threads(threads, [&](unsigned thread) {
    thread_index.x = thread;
    grid_size.x = blocks;
    own_warp = &warps[thread / 32];
    own_block = &block;
    for (block_index.x = 0; block_index.x < blocks; ++block_index.x) {
      kernel();
      wait_at(between);
    }
  });
}

}  // namespace attnforge::test

#define threadIdx attnforge::test::thread_index
#define blockIdx attnforge::test::block_index
#define gridDim attnforge::test::grid_size

// Words of a vector, and the bits of floats.
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float4 {
  float x, y, z, w;
};
struct float2 {
  float x, y;
};
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
inline float __uint_as_float(unsigned x) { return std::bit_cast<float>(x); }
inline unsigned __float_as_uint(float x) { return std::bit_cast<unsigned>(x); }
inline float __int_as_float(int x) { return std::bit_cast<float>(x); }
/// Byte i is that of the eight of x and y that digit i says.
inline unsigned __byte_perm(unsigned x, unsigned y, unsigned digits) {
  unsigned bytes = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned from = digits >> 4 * i & 7;
    bytes |= ((from < 4 ? x : y) >> from % 4 * 8 & 0xff) << 8 * i;
  }
  return bytes;
}
/// NaN is 0, and what is too large is the largest.
inline int __float2int_rn(float x) {
  if (std::isnan(x)) return 0;
  return static_cast<int>(std::clamp(std::nearbyint(double{x}), -0x1p31, 0x1p31 - 1));
}
inline int __float_as_int(float x) { return std::bit_cast<int>(x); }
inline float __fmul_rn(float x, float y) { return x * y; }
inline float __fsub_rn(float x, float y) { return x - y; }
/// Its low half is enough for ptx/cp_async.cuh beside this file, and assembly is left out.
inline std::size_t __cvta_generic_to_shared(const void* pointer) {
  return reinterpret_cast<std::size_t>(pointer);
}
inline void __threadfence() {}
inline unsigned atomicAdd(unsigned* to, unsigned x) {
  return std::atomic_ref<unsigned>(*to).fetch_add(x);
}
template <class Choose>
int atomic_choice(int* to, int x, const Choose& choose) {
  const std::atomic_ref<int> word(*to);
  int old = word.load();
  while (!word.compare_exchange_weak(old, choose(old, x))) {
  }
  return old;
}
inline int atomicMin(int* to, int x) {
  return atomic_choice(to, x, [](int a, int b) { return std::min(a, b); });
}
inline int atomicMax(int* to, int x) {
  return atomic_choice(to, x, [](int a, int b) { return std::max(a, b); });
}
inline int atomicAdd(int* to, int x) { return std::atomic_ref<int>(*to).fetch_add(x); }
/// 0 after `most`.
inline unsigned atomicInc(unsigned* to, unsigned most) {
  const std::atomic_ref<unsigned> word(*to);
  unsigned old = word.load();
  while (!word.compare_exchange_weak(old, old >= most ? 0 : old + 1)) {
  }
  return old;
}

inline float atomicAdd(float* to, float x) { return std::atomic_ref<float>(*to).fetch_add(x); }

inline void __syncthreads() { attnforge::test::wait_at(*attnforge::test::own_block); }
/// Whether any thread of the block has it.
inline int __syncthreads_or(int predicate) {
  static std::atomic<int> any = 0;
  if (predicate != 0) any = 1;
  __syncthreads();
  const int found = any;
  __syncthreads();
  any = 0;
  __syncthreads();
  return found;
}
inline unsigned __ballot_sync(unsigned, bool predicate) {
  const auto& all = attnforge::test::of_all_lanes(predicate);
  unsigned bits = 0;
  for (unsigned lane = 0; lane < 32; ++lane) bits |= static_cast<unsigned>(all[lane]) << lane;
  return bits;
}
inline bool __any_sync(unsigned mask, bool predicate) { return __ballot_sync(mask, predicate); }
inline unsigned __reduce_add_sync(unsigned, unsigned x) {
  unsigned sum = 0;
  for (const std::uint64_t each : attnforge::test::of_all_lanes(x))
    sum += static_cast<unsigned>(each);
  return sum;
}
template <class Join>
int joined_lanes(unsigned lanes, int x, const Join& join) {
  const auto& all = attnforge::test::of_all_lanes(x);
  for (unsigned lane = 0; lane < 32; ++lane)
    if (lanes >> lane & 1) x = join(x, static_cast<int>(all[lane]));
  return x;
}
inline int __reduce_min_sync(unsigned lanes, int x) {
  return joined_lanes(lanes, x, [](int a, int b) { return std::min(a, b); });
}
inline int __reduce_max_sync(unsigned lanes, int x) {
  return joined_lanes(lanes, x, [](int a, int b) { return std::max(a, b); });
}
inline unsigned __reduce_and_sync(unsigned lanes, unsigned x) {
  return static_cast<unsigned>(
      joined_lanes(lanes, static_cast<int>(x), [](int a, int b) { return a & b; }));
}
inline unsigned atomicAnd(unsigned* word, unsigned x) {
  return std::atomic_ref<unsigned>(*word).fetch_and(x);
}
inline unsigned atomicOr(unsigned* word, unsigned x) {
  return std::atomic_ref<unsigned>(*word).fetch_or(x);
}
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __clz(int x) { return x == 0 ? 32 : __builtin_clz(static_cast<unsigned>(x)); }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }
template <class T>
T __ldg(const T* from) {
  return *from;
}
inline int __shfl_sync(unsigned, int x, int lane) {
  return static_cast<int>(attnforge::test::of_all_lanes(x)[static_cast<unsigned>(lane)]);
}
inline float __shfl_sync(unsigned lanes, float x, int lane) {
  return std::bit_cast<float>(__shfl_sync(lanes, std::bit_cast<int>(x), lane));
}
template <class Value>
Value __shfl_up_sync(unsigned, Value x, int distance) {
  const auto& all = attnforge::test::of_all_lanes(x);
  const int lane = static_cast<int>(attnforge::test::thread_index.x) % 32;
  return lane < distance ? x : static_cast<Value>(all[static_cast<unsigned>(lane - distance)]);
}
inline unsigned __shfl_xor_sync(unsigned, unsigned x, int mask) {
  const unsigned lane = attnforge::test::thread_index.x % 32;
  return static_cast<unsigned>(
      attnforge::test::of_all_lanes(x)[lane ^ static_cast<unsigned>(mask)]);
}
inline float __shfl_xor_sync(unsigned lanes, float x, int mask) {
  return std::bit_cast<float>(__shfl_xor_sync(lanes, std::bit_cast<unsigned>(x), mask));
}
using std::max;
using std::min;
inline int __popc(unsigned x) { return __builtin_popcount(x); }

// "asm(...);" and "asm volatile(...);" are a number that is not used.
inline constexpr int attnforge_no_asm = 0;
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wuninitialized"
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#define attnforge_no_asm(...) attnforge_no_asm
#define asm attnforge_no_asm
#define volatile(...)
