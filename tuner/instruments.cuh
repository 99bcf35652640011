// instruments.cuh - the tuner's own small kernels: random inputs, poison and canaries, a gate that
// holds a stream while work is put after it, clocks. They are compiled as one text after
// instruments_params.h.

namespace attnforge {

using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

__device__ __forceinline__ u64 first_index() { return u64(blockIdx.x) * blockDim.x + threadIdx.x; }
__device__ __forceinline__ u64 index_step() { return u64(gridDim.x) * blockDim.x; }

__device__ __forceinline__ u64 time_ns() {
  u64 ns;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
  return ns;
}

/// SplitMix64, a bijection: distinct (seed, index) with distinct sums give distinct bits.
__device__ __forceinline__ u64 mixed_bits(u64 seed, u64 index) {
  u64 z = (seed * 0x632be59bd9b4e019ull) ^ (index * 0x9e3779b97f4a7c15ull);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ull;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

/// Box-Muller on 24 bits each; never beyond 5.9.
__device__ __forceinline__ float normal(u64 seed, u64 index) {
  const u64 bits = mixed_bits(seed, index);
  const float radius_uniform = (float(u32(bits >> 40)) + 0.5f) * (1.0f / 16777216.0f);
  const float turn = float(u32(bits) & 0xffffffu) * (1.0f / 16777216.0f);
  return sqrtf(-2.0f * logf(radius_uniform)) * cospif(2.0f * turn);
}

__device__ __forceinline__ u16 to_fp16(float x) {
  u16 bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}

/// Round to nearest even, for finite x.
__device__ __forceinline__ u16 to_bf16(float x) {
  const u32 bits = __float_as_uint(x);
  return u16((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

constexpr int kFp32 = 0, kFp16 = 1, kBf16 = 2, kInt8 = 3, kInt4 = 4, kE4m3 = 5, kQ8_0 = 7;  // DType

/// A number of 8 bits or fewer; of floats cut off, and never as large as the largest.
__device__ __forceinline__ u32 to_code(float x, int dtype) {
  if (dtype == kInt8) return u32(__float2int_rn(x)) & 0xffu;
  if (dtype == kInt4) return u32(__float2int_rn(x)) & 0xfu;
  if (dtype != kE4m3) return to_fp16(x) >> 8;  // e5m2
  const u32 bits = to_fp16(x * (1.0f / 256.0f));
  return (bits >> 8 & 0x80u) | (bits >> 7 & 0x7fu);
}

/// Word i of an array of blocks, whose values have a deviation of 1 at most.
__device__ __forceinline__ u16 word_of_blocks(u64 seed, u64 i, int dtype) {
  const bool bytes = dtype == kQ8_0;
  const float deviation = bytes ? 21.5f : 1.35f;  // of numbers
  const float x = normal(seed, i);
  if (i % (bytes ? 17 : 9) == 0) return to_fp16((0.8f + 0.03f * x) / deviation);
  u32 word = 0;
  for (int n = 0; n < (bytes ? 2 : 4); ++n) {
    const int number = __float2int_rn(deviation * normal(seed + 1 + n, i));
    word |= bytes ? (u32(max(min(number, 127), -127)) & 0xffu) << (8 * n)
                  : u32(max(min(number, 7), -8) + 8) << (4 * n);
  }
  return u16(word);
}

}  // namespace attnforge

extern "C" __global__ void attnforge_words(const __grid_constant__ attnforge::WordsParams p) {
  using namespace attnforge;
  u16* const words = static_cast<u16*>(p.data);
  u64 different = 0;
  for (u64 i = first_index(); i < p.count; i += index_step()) {
    if (p.different == nullptr) {
      words[i] = u16(p.value);
    } else {
      different += words[i] != u16(p.value);
    }
  }
  if (different != 0) atomicAdd(p.different, different);
}

extern "C" __global__ void attnforge_normal(const __grid_constant__ attnforge::NormalParams p) {
  using namespace attnforge;
  u64 different = 0;
  for (u64 i = first_index(); i < p.count; i += index_step()) {
    const float x = fmaf(normal(p.seed, i), p.deviation, p.mean);
    if (p.dtype >= kQ8_0) {
      u16* const at = static_cast<u16*>(p.data) + i;
      const u16 word = word_of_blocks(p.seed, i, p.dtype);
      if (p.different == nullptr) {
        *at = word;
      } else {
        different += *at != word;
      }
    } else if (p.dtype > kBf16) {
      unsigned char* const at = static_cast<unsigned char*>(p.data) + i;
      u32 bits = to_code(x, p.dtype);
      if (p.dtype == kInt4)
        bits |= to_code(fmaf(normal(p.seed, p.count + i), p.deviation, p.mean), kInt4) << 4;
      if (p.different == nullptr) {
        *at = bits;
      } else {
        different += *at != bits;
      }
    } else if (p.dtype == kFp32) {
      float* const at = static_cast<float*>(p.data) + i;
      if (p.different == nullptr) {
        *at = x;
      } else {
        different += __float_as_uint(*at) != __float_as_uint(x);
      }
    } else {
      u16* const at = static_cast<u16*>(p.data) + i;
      const u16 bits = p.dtype == kFp16 ? to_fp16(x) : to_bf16(x);
      if (p.different == nullptr) {
        *at = bits;
      } else {
        different += *at != bits;
      }
    }
  }
  if (different != 0) atomicAdd(p.different, different);
}

extern "C" __global__ void attnforge_scan(const __grid_constant__ attnforge::ScanParams p) {
  using namespace attnforge;
  u64 poison = 0, nan = 0, sum = 0;
  for (u64 i = first_index(); i < p.count; i += index_step()) {
    u32 bits, poison_bits, infinity;
    if (p.dtype == kFp32) {
      bits = static_cast<const u32*>(p.data)[i];
      poison_bits = p.poison << 16 | p.poison;
      infinity = 0x7f800000u;
    } else {
      bits = static_cast<const u16*>(p.data)[i];
      poison_bits = p.poison;
      infinity = p.dtype == kFp16 ? 0x7c00u : 0x7f80u;
    }
    u64 mixed = (i * 0x9e3779b97f4a7c15ull) ^ bits;
    mixed = (mixed ^ mixed >> 32) * 0xd6e8feb86659fd93ull;
    sum += mixed ^ mixed >> 32;
    const u32 magnitude = bits & (p.dtype == kFp32 ? 0x7fffffffu : 0x7fffu);
    if (bits == poison_bits) {
      ++poison;
    } else if (magnitude > infinity) {
      ++nan;
    }
  }
  if (poison != 0) atomicAdd(&p.counters[0], poison);
  if (nan != 0) atomicAdd(&p.counters[1], nan);
  for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
  if (threadIdx.x % 32 == 0) atomicAdd(&p.counters[2], sum);
}

extern "C" __global__ void attnforge_gather(const __grid_constant__ attnforge::GatherParams p) {
  using namespace attnforge;
  const u16* const from = static_cast<const u16*>(p.from);
  u16* const to = static_cast<u16*>(p.to);
  const u64 count = u64(p.heads) * p.num_rows * p.width;
  for (u64 i = first_index(); i < count; i += index_step()) {
    u64 rest = i;
    const int column = int(rest % p.width);
    rest /= p.width;
    const int entry = int(rest % p.num_rows);
    const int head = int(rest / p.num_rows);
    const int batch = p.rows[2 * entry], row = p.rows[2 * entry + 1];
    to[i] = from[batch * p.stride_batch + row * p.stride_row + head * p.stride_head + column];
  }
}

extern "C" __global__ void attnforge_gate(const __grid_constant__ attnforge::GateParams p) {
  using namespace attnforge;
  const u64 end_ns = time_ns() + p.limit_ns;
  while (*static_cast<const volatile u32*>(p.open) != p.ticket) {
    if (time_ns() > end_ns) {
      *static_cast<volatile u32*>(p.expired) = p.ticket;
      __threadfence_system();
      return;
    }
  }
}

extern "C" __global__ void attnforge_clock(const __grid_constant__ attnforge::ClockParams p) {
  using namespace attnforge;
  if (threadIdx.x != 0) return;
  u32 sm;
  asm volatile("mov.u32 %0, %%smid;" : "=r"(sm));
  if (sm >= p.count) return;
  ClockStamp* const stamp = &p.stamps[sm];
  if (atomicExch(&stamp->taken, 1ull) != 0) return;
  stamp->cycles = clock64();
  stamp->ns = time_ns();
}
