// rows.cuh - the elements of an aligned array that a lane's scores take, read as rows: an element
// for a key is next to that for the key before, so 16 bytes are a load where all rows are queries,
// and 4 bytes where accumulators are transposed.
#pragma once

#include "backward/transposed_scores.cuh"
#include "parts/user_code/code.cuh"
#include "ptx/convert.cuh"
#include "ptx/global_memory.cuh"
#include "ptx/mma_fragment.cuh"
#include "ptx/movmatrix.cuh"
#include "ptx/special_registers.cuh"
#include "tile/fragment_scores.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// One of the elements of 16 bits in a word.
template <class T>
ATTNFORGE_DEVICE float half_of(u32 word, int half) {
  float low, high;
  unpack2<kSame<T, Bf16> ? kBf16 : kFp16>(word, low, high);
  return half == 0 ? low : high;
}

/// Of T, for scores as Score takes them. begin() loads, end() comes before for_each(), whose
/// of_row(row, lane_key) gives a function of a score, its key's offset and its element.
/// place_of(row, key) says where an element is, `keys` how many a row has; those after the last may
/// be read up to a multiple of 16 bytes.
template <class T, class Scores>
struct RowElements;

template <class T, int kFragments>
struct RowElements<T, FragmentScores<float[kFragments][4]>> {
  using Scores = FragmentScores<float[kFragments][4]>;
  using Reads = ReadBefore;
  using Words = u32[2][kFragments * int(sizeof(T)) / 2];
  static constexpr bool kHalves = sizeof(T) == 2;
  static constexpr int kGroups = kHalves ? kFragments / 4 : 0;  // of 32 keys
  Words words;

  template <class PlaceOf>
  ATTNFORGE_DEVICE void begin(const Scores& scores, int keys, const PlaceOf& place_of) {
    const int column = MmaFragment::column(lane()), first = scores.first_key;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const T* const row = place_of(scores.row + 8 * r, first);
      unrolled<kGroups>([&](int g) {
        const int key = 32 * g + 4 * column;
        load_global(reinterpret_cast<u32(&)[4]>(words[r][4 * g]), row + key, first + key < keys);
      });
      unrolled<kFragments - 4 * kGroups>([&](int i) {
        const int j = 4 * kGroups + i, key = 8 * j + column;
        if constexpr (kHalves)
          load_global(words[r][j], row + key, first + key < keys);
        else
          load_global(reinterpret_cast<u32(&)[2]>(words[r][2 * j]), row + key, first + key < keys);
      });
    }
  }
  /// A lane has 8 keys in a row of each 32, where it wants 2 of each 8: four lanes exchange words.
  ATTNFORGE_DEVICE void end() {
    unrolled<2, kGroups>([&](int r, int g) {
      u32(&four)[4] = reinterpret_cast<u32(&)[4]>(words[r][4 * g]);
      exchange<1>(four[0], four[1]);
      exchange<1>(four[2], four[3]);
      exchange<2>(four[0], four[2]);
      exchange<2>(four[1], four[3]);
    });
  }
  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const Scores& scores, const OfRow& of_row) const {
    const int lane_key = scores.first_key + MmaFragment::column(lane());
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto f = of_row(scores.row + 8 * r, lane_key);
      unrolled<kFragments, 2>([&](int j, int c) {
        float element;
        if constexpr (kHalves)
          element = half_of<T>(words[r][j], c);
        else
          element = __uint_as_float(words[r][2 * j + c]);
        float& s = scores.all[j][2 * r + c];
        s = f(s, j * 8 + c, ReadBefore{element});
      });
    }
  }

 private:
  ATTNFORGE_DEVICE static int lane() { return thread_index() % 32; }
  /// Of two lanes that are kApart apart the first keeps `a` and the second `b`; each takes the
  /// other's in the place of what it does not keep.
  template <int kApart>
  ATTNFORGE_DEVICE static void exchange(u32 & a, u32 & b) {
    const bool second = (lane() & kApart) != 0;
    const u32 other = __shfl_xor_sync(~0u, second ? a : b, kApart);
    if (second)
      a = other;
    else
      b = other;
  }
};

template <class T, int kRowFragments, int kFragments>
struct RowElements<T, FragmentScores<float[kRowFragments][kFragments][4]>> {
  using Scores = FragmentScores<float[kRowFragments][kFragments][4]>;
  using One = FragmentScores<float[kFragments][4]>;
  using Reads = ReadBefore;
  using Words = RowElements<T, One>[kRowFragments];
  Words of;

  template <class PlaceOf>
  ATTNFORGE_DEVICE void begin(const Scores& scores, int keys, const PlaceOf& place_of) {
    unrolled<kRowFragments>([&](int f) { of[f].begin(one(scores, f), keys, place_of); });
  }
  ATTNFORGE_DEVICE void end() {
    unrolled<kRowFragments>([&](int f) { of[f].end(); });
  }
  template <class OfRow>
  ATTNFORGE_DEVICE void for_each(const Scores& scores, const OfRow& of_row) const {
    unrolled<kRowFragments>([&](int f) { of[f].for_each(one(scores, f), of_row); });
  }
  ATTNFORGE_DEVICE static One one(const Scores& scores, int f) {
    return {scores.all[f], scores.row + 16 * f, scores.first_key};
  }
};

/// Rows of accumulators are keys.
template <class T, int kKeyFragments, int kFragments>
struct RowElements<T, TransposedScores<float[kKeyFragments][kFragments][4]>> {
  using Array = float[kKeyFragments][kFragments][4];
  using Reads = ReadBefore;
  using Words = u32[kKeyFragments][kFragments][int(sizeof(T))];
  static constexpr bool kHalves = sizeof(T) == 2;
  Words words;

  template <class Scores, class PlaceOf>
  ATTNFORGE_DEVICE void begin(const Scores& scores, int keys, const PlaceOf& place_of) {
    const int lane = thread_index() % 32, column = MmaFragment::column(lane);
    if constexpr (kHalves) {  // matrices as they lie in memory, to be transposed
      const int first = scores.lane_key - MmaFragment::row(lane) + column;
      unrolled<kFragments>([&](int j) {
        const T* const row = place_of(scores.first_row + 8 * j + MmaFragment::row(lane), first);
        unrolled<kKeyFragments, 2>([&](int i, int r) {
          const int key = 16 * i + 8 * r;
          load_global(words[i][j][r], row + key, first + key < keys);
        });
      });
    } else {
      unrolled<kFragments, 2>([&](int j, int c) {
        const T* const row = place_of(scores.first_row + 8 * j + column + c, scores.lane_key);
        unrolled<kKeyFragments, 2>([&](int i, int r) {
          const int key = 16 * i + 8 * r;
          load_global(words[i][j][2 * r + c], row + key, scores.lane_key + key < keys);
        });
      });
    }
  }
  ATTNFORGE_DEVICE void end() {
    if constexpr (kHalves) {
      unrolled<kKeyFragments, kFragments>([&](int i, int j) {
        words[i][j][0] = movmatrix_trans(words[i][j][0]);
        words[i][j][1] = movmatrix_trans(words[i][j][1]);
      });
    }
  }
  template <class Scores, class OfRow>
  ATTNFORGE_DEVICE void for_each(const Scores& scores, const OfRow& of_row) const {
    Array& all = reinterpret_cast<Array&>(scores.all);
    const int row = scores.first_row + MmaFragment::column(thread_index() % 32);
    unrolled<kFragments, 2>([&](int j, int c) {
      const auto f = of_row(row + 8 * j + c, scores.lane_key);
      unrolled<kKeyFragments, 2>([&](int i, int r) {
        float element;
        if constexpr (kHalves)
          element = half_of<T>(words[i][j][r], c);
        else
          element = __uint_as_float(words[i][j][2 * r + c]);
        float& s = all[i][j][2 * r + c];
        s = f(s, 16 * i + 8 * r, ReadBefore{element});
      });
    });
  }
};
template <class T, int kFragments>
struct RowElements<T, TransposedScores<float[kFragments][4]>>
    : RowElements<T, TransposedScores<float[1][kFragments][4]>>{};

}  // namespace attnforge
