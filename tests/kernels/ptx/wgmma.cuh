// wgmma.cuh - templates/ptx/wgmma.cuh on the host: each thread computes its own elements, when a
// product is issued or when it is waited for.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>

#include "base.cuh"
#include "generator/formats/codes.h"
#include "ptx/convert.cuh"
#include "tests/kernels/products.h"

namespace attnforge {

inline const std::vector<float> kOfE4m3 = all_of(e4m3_to_float);

/// Elements of 16 bits, or of 8, that lie one after the other.
template <int kDtype, int kCount>
void of_bytes(const std::byte* from, float* to) {
  if constexpr (kDtype == kE4m3) {
    for (int i = 0; i < kCount; ++i) to[i] = kOfE4m3[static_cast<u8>(from[i])];
  } else {
    u16 bits[kCount];
    std::memcpy(bits, from, sizeof(bits));
    for (int i = 0; i < kCount; ++i) to[i] = of_half<kDtype>(bits[i]);
  }
}

/// 32 bytes of each row of an operand in shared memory, as its descriptor says.
struct HostOperand {
  u32 address, chunk, group;

  explicit HostOperand(u64 descriptor)
      : address(static_cast<u32>(descriptor & 0x3fff) << 4),
        chunk(static_cast<u32>(descriptor >> 16 & 0x3fff) << 4),
        group(static_cast<u32>(descriptor >> 32 & 0x3fff) << 4) {}
};
/// Rows of the operand as they lie.
template <int kDtype>
struct KMajor : HostOperand {
  template <int kDepth>
  void two_rows(const test::Sm& sm, int first, float (&to)[2][kDepth]) const {
    for (int i = 0; i < 2; ++i) row(sm, first + i, to[i]);
  }
  template <int kDepth>
  void row(const test::Sm& sm, int row, float (&to)[kDepth]) const {
    constexpr int kInSwizzle = kDepth / 2;  // 16 bytes stay together
    const u32 place = address + static_cast<u32>(row / 8) * group + static_cast<u32>(row % 8 * 128);
    for (u32 i = 0; i < 2; ++i)
      of_bytes<kDtype, kInSwizzle>(sm.at(test::swizzled(place + i * 16), 16), to + i * kInSwizzle);
  }
};
/// The k-th row that lies there holds the k-th element of all.
template <int kDtype>
struct MnMajor : HostOperand {
  template <int kDepth>
  void row(const test::Sm& sm, int row, float (&to)[kDepth]) const {
    const u32 place = address + static_cast<u32>(row / 64) * chunk + static_cast<u32>(row % 64 * 2);
    for (u32 k = 0; k < kDepth; ++k)
      to[k] = of_half<kDtype>(sm.load<u16>(test::swizzled(place + k / 8 * group + k % 8 * 128)));
  }
  /// This one, which is even, and the next one: a word has an element of both, and eight rows of
  /// 128 bytes are a swizzle's whole pattern.
  template <int kDepth>
  void two_rows(const test::Sm& sm, int first, float (&to)[2][kDepth]) const {
    const u32 place = address + static_cast<u32>(first / 64) * chunk;
    const u32 column = place % 128 + static_cast<u32>(first % 64 * 2);
    for (u32 eight = 0; eight < kDepth; eight += 8) {
      const u32 begin = place - place % 128 + eight / 8 * group;
      const std::byte* const rows = sm.at(begin, 1024);
      for (u32 k = 0; k < 8; ++k) {
        const u32 in_row = column ^ ((begin / 128 + k) % 8 * 16);
        u32 word;
        std::memcpy(&word, rows + k * 128 + in_row, sizeof(word));
        unpack2<kDtype>(word, to[0][eight + k], to[1][eight + k]);
      }
    }
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

  /// a has rows of d, b its columns.
  template <class A, class B>
  static void issue(D& d, bool accumulate, const A& a, const B& b) {
    const int thread = static_cast<int>(threadIdx.x);
    const int row = thread / 32 % 4 * 16 + thread % 32 / 4, column = thread % 4 * 2;
    test::issue(test::machine->products, [&d, &sm = test::own_sm(), accumulate, a, b, row, column] {
      float of_rows[2][kDepth], of_columns[2][kDepth];
      for (int i = 0; i < 2; ++i) a.row(sm, row + i * 8, of_rows[i]);
      const RowsOfProduct<kDepth> rows(of_rows);
      for (int j = 0; j < kN / 8; ++j) {
        b.two_rows(sm, j * 8 + column, of_columns);
        if (!accumulate) std::fill_n(d[j], 4, 0.0f);
        rows.add(d[j], of_columns);
      }
    });
  }
  static auto k_major(u64 descriptor) { return KMajor<kDtype>{HostOperand(descriptor)}; }
  static auto mn_major(u64 descriptor) { return MnMajor<kDtype>{HostOperand(descriptor)}; }
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
/// What the lanes of a warp have in registers now of this thread's two rows.
template <int kDtype>
struct OfRegisters {
  float rows[2][32 / element_bytes(kDtype)];

  OfRegisters(u32 a0, u32 a1, u32 a2, u32 a3) {
    const auto& lanes = test::words_of_lanes(std::array<unsigned, 4>{a0, a1, a2, a3});
    const std::size_t first = threadIdx.x % 32 / 4 * 4;
    constexpr int kInWord = 4 / element_bytes(kDtype);
    for (std::size_t i = 0; i < 4; ++i)
      for (std::size_t word = 0; word < 4; ++word)
        of_bytes<kDtype, kInWord>(reinterpret_cast<const std::byte*>(&lanes[first + i][word]),
                                  rows[word % 2] + (word / 2 * 4 + i) * kInWord);
  }
  template <int kDepth>
  void row(const test::Sm&, int row, float (&to)[kDepth]) const {
    std::memcpy(to, rows[row % 16 / 8], sizeof(to));
  }
};
template <int kDtype, int kN, int kSteps>
struct WgmmaRegsMn {
  using Product = HostProduct<kDtype, kN>;

  template <int kBStep>
  static void add(typename Product::D& d, const u32 (&a)[kSteps][4], u64 b) {
    wgmma_fence();
    for (int k = 0; k < kSteps; ++k)
      Product::issue(d, true, OfRegisters<kDtype>(a[k][0], a[k][1], a[k][2], a[k][3]),
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
    Product::issue(d, accumulate, OfRegisters<kDtype>(a0, a1, a2, a3), Product::k_major(b));
  }
  static void regs_smem_mn(D& d, u32 a0, u32 a1, u32 a2, u32 a3, u64 b) {
    Product::issue(d, true, OfRegisters<kDtype>(a0, a1, a2, a3), Product::mn_major(b));
  }
};

template <int kRows, int kColumns, class T>
void pin(T (&)[kRows][kColumns]) {}

}  // namespace attnforge
