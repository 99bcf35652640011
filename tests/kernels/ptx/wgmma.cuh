// wgmma.cuh - templates/ptx/wgmma.cuh on the host: each thread computes its own elements, when a
// product is issued or when it is waited for.
#pragma once

#include <array>
#include <functional>
#include <utility>

#include "base.cuh"

namespace attnforge {

/// An operand in shared memory, as its descriptor says.
struct HostOperand {
  u32 address, chunk, group;

  explicit HostOperand(u64 descriptor)
      : address(static_cast<u32>(descriptor & 0x3fff) << 4),
        chunk(static_cast<u32>(descriptor >> 16 & 0x3fff) << 4),
        group(static_cast<u32>(descriptor >> 32 & 0x3fff) << 4) {}
  /// Row `row` of the operand as it lies, with its k-th element in it.
  float k_major(const test::Sm& sm, int row, int k) const {
    return at(sm, address + static_cast<u32>(row / 8) * group + static_cast<u32>(row % 8 * 128) +
                      static_cast<u32>(k * 2));
  }
  /// The k-th row holds the k-th element of all.
  float mn_major(const test::Sm& sm, int row, int k) const {
    return at(sm, address + static_cast<u32>(row / 64) * chunk + static_cast<u32>(k / 8) * group +
                      static_cast<u32>(k % 8 * 128 + row % 64 * 2));
  }
  static float at(const test::Sm& sm, u32 place) {
    return __uint_as_float(u32{sm.load<u16>(test::swizzled(place))} << 16);
  }
};

template <int kSwizzle, int kChunk, int kGroup>
u64 smem_descriptor(u32 address) {
  static_assert(kSwizzle == 128);
  return u64((address & 0x3ffff) >> 4) | u64(kChunk >> 4) << 16 | u64(kGroup >> 4) << 32;
}

/// As the hardware does, this waits for the warpgroup's other warps (SASS: WARPGROUP.ARRIVE).
inline void wgmma_fence() { test::wait_at(test::machine->warpgroups[test::own_number() / 128]); }
inline void wgmma_commit() { test::commit(test::machine->products); }
template <int kPending>
void wgmma_wait() {
  test::await_groups(test::machine->products, kPending);
}

/// bf16. d is 64 x kN: a thread has two rows of it.
template <int kDtype, int kN>
struct Wgmma {
  static_assert(kDtype == kBf16);
  using D = float[kN / 8][4];

  static int row(int element) {
    return static_cast<int>(threadIdx.x) / 32 % 4 * 16 + static_cast<int>(threadIdx.x) % 32 / 4 +
           element / 2 * 8;
  }
  static int column(int j, int element) {
    return j * 8 + static_cast<int>(threadIdx.x) % 4 * 2 + element % 2;
  }
  template <class A, class B>
  static void issue(D& d, bool accumulate, const A& a, const B& b) {
    std::array<int, 4> rows, columns;
    for (int e = 0; e < 4; ++e)
      rows[static_cast<u32>(e)] = row(e), columns[static_cast<u32>(e)] = column(0, e);
    test::issue(test::machine->products,
                [&d, &sm = test::own_sm(), accumulate, a, b, rows, columns] {
                  for (int j = 0; j < kN / 8; ++j)
                    for (u32 e = 0; e < 4; ++e) {
                      float sum = accumulate ? d[j][e] : 0.0f;
                      for (int k = 0; k < 16; ++k)
                        sum += a(sm, rows[e], k) * b(sm, columns[e] + j * 8, k);
                      d[j][e] = sum;
                    }
                });
  }
  static void smem_smem(D& d, u64 a, u64 b, int accumulate) {
    issue(
        d, accumulate != 0,
        [a = HostOperand(a)](const test::Sm& sm, int m, int k) { return a.k_major(sm, m, k); },
        [b = HostOperand(b)](const test::Sm& sm, int n, int k) { return b.k_major(sm, n, k); });
  }
  static void smem_mn_smem(D& d, u64 a, u64 b, int accumulate) {
    issue(
        d, accumulate != 0,
        [a = HostOperand(a)](const test::Sm& sm, int m, int k) { return a.mn_major(sm, m, k); },
        [b = HostOperand(b)](const test::Sm& sm, int n, int k) { return b.k_major(sm, n, k); });
  }
  static void regs_smem_mn(D& d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    const auto lanes = test::words_of_lanes(std::array<unsigned, 4>{a0, a1, a2, a3});
    const auto a = [lanes](const test::Sm&, int m, int k) {
      const u32 lane = static_cast<u32>(m % 8 * 4 + k % 8 / 2);
      const u32 word = lanes[lane][static_cast<u32>(m % 16 / 8 + k / 8 * 2)];
      return __uint_as_float(k % 2 == 0 ? word << 16 : word & 0xffff0000u);
    };
    issue(d, true, a,
          [b = HostOperand(b)](const test::Sm& sm, int n, int k) { return b.mn_major(sm, n, k); });
  }
};

template <int kRows, int kColumns, class T>
void pin(T (&)[kRows][kColumns]) {}

}  // namespace attnforge
