// rows_test.cpp - elements of an aligned array as lanes of a warp have them beside their scores, on
// threads of the host: each beside the element of its row and key.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "generator/formats/half.h"

// clang-format off
#include "tests/support/host_grid.h"
#include "parts/user_code/rows.cuh"
#include "parts/user_code/whole_dargs.cuh"
// clang-format on

namespace attnforge {
namespace {

constexpr int kRows = 96, kColumns = 336;

/// A different number for each of a row and a key, exact in all formats: 11 bits.
float number(int row, int key) { return float((row * 37 + key * 5) % 1999 - 999); }

template <class T>
T element(float x) {
  if constexpr (kSame<T, float>)
    return x;
  else
    return T{u16(kSame<T, Bf16> ? __float_as_uint(x) >> 16 : float_to_fp16(x))};
}
/// What bf16 keeps of a number.
template <class T>
float kept(float x) {
  return kSame<T, Bf16> ? __uint_as_float(__float_as_uint(x) & 0xffff0000u) : x;
}

template <class T>
struct alignas(16) Array {
  std::vector<T> elements = std::vector<T>(kRows * kColumns);

  Array() {
    for (int row = 0; row < kRows; ++row)
      for (int key = 0; key < kColumns; ++key) at(row, key) = element<T>(number(row, key));
  }
  T& at(int row, int key) { return elements[static_cast<std::size_t>(row * kColumns + key)]; }
};

/// Scores of a warp in a Scores, of which view(array) makes what Score takes. All are visited, with
/// the element of their row and key, and none after the last key is read.
template <class T, class Numbers, class ViewOf>
void expect_elements(int keys, const ViewOf& view_of) {
  Array<T> array;
  for (int row = 0; row < kRows; ++row)
    for (int key = (keys + 7) / 8 * 8; key < kColumns; ++key)
      array.at(row, key) = element<T>(7777.0f);  // bf16: not what number() gives
  std::atomic<int> seen = 0, wrong = 0;
  test::run_on_host(1, 32, [&] {
    Numbers numbers{};
    const auto scores = view_of(numbers);
    RowElements<T, std::remove_const_t<decltype(scores)>> rows;
    rows.begin(scores, keys, [&](int row, int key) -> const T* {
      return array.elements.data() + row * kColumns + key;
    });
    rows.end();
    rows.for_each(scores, [&](int row, int lane_key) {
      return [&, row, lane_key](float, int offset, const ReadBefore& read) {
        const int key = lane_key + offset;
        ++seen;
        if (key < keys && read.element != kept<T>(number(row, key))) ++wrong;
        if (key >= (keys + 7) / 8 * 8 && read.element != 0.0f) ++wrong;
        return 1.0f;
      };
    });
    for (const float* x = reinterpret_cast<const float*>(&numbers);
         x < reinterpret_cast<const float*>(&numbers + 1); ++x)
      if (*x != 1.0f) ++wrong;
  });
  EXPECT_EQ(seen, 32 * int(sizeof(Numbers) / sizeof(float)));
  EXPECT_EQ(wrong, 0);
}

template <class T>
class RowsOf : public testing::Test {};
using Elements = testing::Types<Bf16, Fp16, float>;
TYPED_TEST_SUITE(RowsOf, Elements);

int row_of_lane() { return MmaFragment::row(thread_index() % 32); }

TYPED_TEST(RowsOf, QueriesHaveTheElementsOfTheirKeys) {
  for (const int keys : {kColumns, 150, 64, 17}) {
    expect_elements<TypeParam, float[16][4]>(keys, [](float(&s)[16][4]) {
      return FragmentScores<float[16][4]>{s, 16 + row_of_lane(), 64};
    });
    expect_elements<TypeParam, float[10][4]>(keys, [](float(&s)[10][4]) {
      return FragmentScores<float[10][4]>{s, 3 + row_of_lane(), 160};
    });
    expect_elements<TypeParam, float[2][6][4]>(keys, [](float(&s)[2][6][4]) {
      return FragmentScores<float[2][6][4]>{s, 32 + row_of_lane(), 16};
    });
  }
}

TYPED_TEST(RowsOf, KeysHaveTheElementsOfTheirQueries) {
  for (const int keys : {kColumns, 150, 64, 17}) {
    expect_elements<TypeParam, float[6][4]>(keys, [](float(&s)[6][4]) {
      return TransposedScores<float[6][4]>{s, 16, 64 + row_of_lane()};
    });
    expect_elements<TypeParam, float[2][4][4]>(keys, [](float(&s)[2][4][4]) {
      return TransposedScores<float[2][4][4]>{s, 32, 128 + row_of_lane()};
    });
  }
}

/// "s + bias[q * kColumns + k]", as an entry has it where the gradient of bias is wanted.
template <class T, bool kEven>
struct RowCode {
  using Words = CodeParams<2>;
  using RowElement = T;
  static constexpr bool kScoreReadsByKey = true, kMaskReadsByKey = false, kTanh = false;
  static constexpr bool kAddsElement = true, kEvenRows = kEven;
  static constexpr int kMostReads = 1;
  static constexpr bool kReadsWithoutQuery = false, kSlopeIsOne = true;

  template <class Tanh, class S, class Reads = FromMemory>
  static auto score(const Words& code, const Tanh&, S s, int, int, int q, KeyPosition k, int, int,
                    const Reads& reads = {}) {
    return s + AlignedArray<T, Reads>(code.words[0], reads)[q * kColumns + k];
  }
  template <class Tanh, class S>
  static auto score_of_reads(const Words& code, const Tanh&, OneRead& reads, S s, int, int, int q,
                             KeyPosition k, int, int) {
    const ReadArray<UserArray<T>> bias(code.words[0], code.words[1], reads);
    return value_of_score((s + bias[q * kColumns + k]));
  }
};
struct RowsTile {
  struct {
    CodeParams<2> code;
  } params;
  struct {
    int rows, keys;
    int q() const { return rows; }
    int kv() const { return keys; }
  } lengths;
  int batch = 0;
  static int query_of(int row) { return row; }
  static int query_head_of(int) { return 0; }
};

/// A warp writes dS of 16 keys and 64 queries; zeros go elsewhere, and nothing where nobody is.
template <class T, bool kEven>
void expect_written_whole() {
  using Dargs = WholeDargs<RowCode<T, kEven>, UserRow<RowCode<T, kEven>>>;
  constexpr int kQueries = 70, kKeys = 27, kFirstRow = 16, kFirstKey = 16;
  Array<T> bias, gradient;
  for (int row = 0; row < kRows; ++row)
    for (int key = 0; key < kColumns; ++key) gradient.at(row, key) = element<T>(5.0f);
  RowsTile tile{{{{reinterpret_cast<u64>(bias.elements.data()),
                   reinterpret_cast<u64>(gradient.elements.data())}}},
                {kQueries, kKeys}};
  test::run_on_host(1, 32, [&] {
    float ds[8][4];
    const TransposedScores<float[8][4]> view{ds, kFirstRow, kFirstKey + row_of_lane()};
    view.for_each([&](int row, int lane_key) {
      return [=](float, int offset) { return number(row, lane_key + offset); };
    });
    Dargs::store_rows(view, tile);
    Dargs::template clear_rows<16, 32>(tile, 0, kFirstRow, kFirstKey, thread_index());
    Dargs::template clear_rows<16, 32>(tile, 96, 200, kFirstKey, thread_index());
  });
  for (int row = 0; row < kRows; ++row) {
    for (int key = 0; key < kColumns; ++key) {
      const bool of_tile = key >= kFirstKey && key < kKeys && row < kQueries;
      const float wanted = !of_tile ? 5.0f : row < kFirstRow ? 0.0f : number(row, key);
      if (key >= kKeys && key < round_up(kKeys, 8)) continue;  // of the row, and of no pair
      const T found = gradient.at(row, key);
      float x;
      if constexpr (kSame<T, float>)
        x = found;
      else
        x = half_of<T>(found.bits, 0);
      EXPECT_NEAR(x, wanted, (kSame<T, Bf16>) ? std::abs(wanted) / 256 : 0) << row << ", " << key;
    }
  }
}
TYPED_TEST(RowsOf, GradientsAreWrittenWhole) {
  expect_written_whole<TypeParam, true>();
  expect_written_whole<TypeParam, false>();
}

}  // namespace
}  // namespace attnforge
