// wgmma.cuh - templates/ptx/wgmma.cuh on the host: each thread computes its own elements, when a
// product is issued or when it is waited for.
#pragma once

#include <array>
#include <functional>
#include <utility>

#include "base.cuh"
#include "generator/formats/codes.h"
#include "ptx/convert.cuh"

namespace attnforge {

template <int kDtype>
float of_bits(u32 bits) {
  if constexpr (kDtype == kE4m3)
    return e4m3_to_float(static_cast<u8>(bits));
  else
    return of_half<kDtype>(bits);
}

/// An operand in shared memory, as its descriptor says.
template <int kDtype>
struct HostOperand {
  u32 address, chunk, group;

  explicit HostOperand(u64 descriptor)
      : address(static_cast<u32>(descriptor & 0x3fff) << 4),
        chunk(static_cast<u32>(descriptor >> 16 & 0x3fff) << 4),
        group(static_cast<u32>(descriptor >> 32 & 0x3fff) << 4) {}
  /// Row `row` of the operand as it lies, with its k-th element in it.
  float k_major(const test::Sm& sm, int row, int k) const {
    return at(sm, address + static_cast<u32>(row / 8) * group + static_cast<u32>(row % 8 * 128) +
                      static_cast<u32>(k * element_bytes(kDtype)));
  }
  /// The k-th row holds the k-th element of all.
  float mn_major(const test::Sm& sm, int row, int k) const {
    return at(sm, address + static_cast<u32>(row / 64) * chunk + static_cast<u32>(k / 8) * group +
                      static_cast<u32>(k % 8 * 128 + row % 64 * 2));
  }
  static float at(const test::Sm& sm, u32 place) {
    if constexpr (kDtype == kE4m3) return of_bits<kDtype>(sm.load<u8>(test::swizzled(place)));
    return of_bits<kDtype>(sm.load<u16>(test::swizzled(place)));
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
/// By all lanes of a warp: what one says after it is said of all of them.
template <int kPending>
void wgmma_wait() {
  test::await_groups(test::machine->products, kPending);
  test::wait_at(test::own_warp->barrier);
}

/// 32 bytes of each operand. d is 64 x kN: a thread has two rows of it.
template <int kDtype, int kN>
struct HostProduct {
  using D = float[kN / 8][4];
  static constexpr int kDepth = 32 / element_bytes(kDtype);

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
                  float of_rows[2][kDepth], of_columns[2][kDepth];
                  for (u32 i = 0; i < 2; ++i)
                    for (int k = 0; k < kDepth; ++k) of_rows[i][k] = a(sm, rows[i * 2], k);
                  for (int j = 0; j < kN / 8; ++j) {
                    for (u32 i = 0; i < 2; ++i)
                      for (int k = 0; k < kDepth; ++k)
                        of_columns[i][k] = b(sm, columns[i] + j * 8, k);
                    for (u32 e = 0; e < 4; ++e) {
                      float sum = accumulate ? d[j][e] : 0.0f;
                      for (int k = 0; k < kDepth; ++k)
                        sum += of_rows[e / 2][k] * of_columns[e % 2][k];
                      d[j][e] = sum;
                    }
                  }
                });
  }
  static auto k_major(u64 descriptor) {
    return [of = HostOperand<kDtype>(descriptor)](const test::Sm& sm, int row_of_it, int k) {
      return of.k_major(sm, row_of_it, k);
    };
  }
  static auto mn_major(u64 descriptor) {
    return [of = HostOperand<kDtype>(descriptor)](const test::Sm& sm, int row_of_it, int k) {
      return of.mn_major(sm, row_of_it, k);
    };
  }
};
/// Of step k, of what lies in chunks of 64 columns.
inline u64 in_chunks(u64 descriptor, int k, int chunk) {
  return descriptor + static_cast<u64>(k / 4 * chunk + k % 4 * 2);
}

/// d = a * b, of which a(k) and b(k) give the operands of step k.
template <int kSteps, class Product, class A, class B>
void set_product(typename Product::D& d, const A& a, const B& b) {
  wgmma_fence();
  for (int k = 0; k < kSteps; ++k) Product::issue(d, k > 0, a(k), b(k));
}

template <int kDtype, int kN, int kSteps>
struct WgmmaKK {
  using Product = HostProduct<kDtype, kN>;

  template <int kAChunk, int kBChunk>
  static void set(typename Product::D& d, u64 a, u64 b) {
    set_product<kSteps, Product>(
        d, [&](int k) { return Product::k_major(in_chunks(a, k, kAChunk)); },
        [&](int k) { return Product::k_major(in_chunks(b, k, kBChunk)); });
  }
};
template <int kDtype, int kN, int kSteps>
struct WgmmaMnK {
  using Product = HostProduct<kDtype, kN>;

  template <int kAStep, int kBChunk>
  static void set(typename Product::D& d, u64 a, u64 b) {
    set_product<kSteps, Product>(
        d, [&](int k) { return Product::mn_major(a + static_cast<u64>(k * kAStep)); },
        [&](int k) { return Product::k_major(in_chunks(b, k, kBChunk)); });
  }
};
/// An operand that the lanes of a warp have in registers now.
template <int kDtype>
auto of_registers(u32 a0, u32 a1, u32 a2, u32 a3) {
  const auto lanes = test::words_of_lanes(std::array<unsigned, 4>{a0, a1, a2, a3});
  return [lanes](const test::Sm&, int m, int depth) {
    constexpr int kInWord = 4 / element_bytes(kDtype), kBits = 32 / kInWord;
    const u32 lane = static_cast<u32>(m % 8 * 4 + depth % (4 * kInWord) / kInWord);
    const u32 word = lanes[lane][static_cast<u32>(m % 16 / 8 + depth / (4 * kInWord) * 2)];
    return of_bits<kDtype>(word >> depth % kInWord * kBits & ((1u << kBits) - 1));
  };
}
template <int kDtype, int kN, int kSteps>
struct WgmmaRegsMn {
  using Product = HostProduct<kDtype, kN>;

  template <int kBStep>
  static void add(typename Product::D& d, const u32 (&a)[kSteps][4], u64 b) {
    wgmma_fence();
    for (int k = 0; k < kSteps; ++k)
      Product::issue(d, true, of_registers<kDtype>(a[k][0], a[k][1], a[k][2], a[k][3]),
                     Product::mn_major(b + static_cast<u64>(k * kBStep)));
  }
};
template <int kDtype, int kN>
struct Wgmma {
  using Product = HostProduct<kDtype, kN>;
  using D = typename Product::D;

  static void smem_smem(D& d, u64 a, u64 b, bool accumulate) {
    Product::issue(d, accumulate, Product::k_major(a), Product::k_major(b));
  }
  static void regs_smem(D& d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b, bool accumulate) {
    Product::issue(d, accumulate, of_registers<kDtype>(a0, a1, a2, a3), Product::k_major(b));
  }
  static void regs_smem_mn(D& d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    Product::issue(d, true, of_registers<kDtype>(a0, a1, a2, a3), Product::mn_major(b));
  }
};

template <int kRows, int kColumns, class T>
void pin(T (&)[kRows][kColumns]) {}

}  // namespace attnforge
