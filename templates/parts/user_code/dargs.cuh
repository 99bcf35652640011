// dargs.cuh - gradients of arrays that the score's text reads. The text is compiled once more with
// arrays whose elements carry a derivative, that of one read 1, all others 0, and which note where
// that read was; what many pairs of a warp add to one element is added up in registers first.
#pragma once

#include "backward/score_slopes.cuh"
#include "parts/user_code/score_with_slope.cuh"
#include "pieces/plain_score.cuh"
#include "ptx/mma_fragment.cuh"
#include "ptx/mma_sync.cuh"
#include "ptx/reduction.cuh"
#include "ptx/shuffle.cuh"
#include "tile/unrolled.cuh"

namespace attnforge {

/// Picks the read number `wanted` of one evaluation of the text.
struct OneRead {
  int wanted;
  int count = 0;              // of reads so far
  float* gradient = nullptr;  // of the array that the wanted one was of; null: the text has made
                              // fewer
  i64 element = 0;            // and which

  ATTNFORGE_DEVICE float slope_of(float* of, i64 at) {
    if (count++ != wanted) return 0.0f;
    gradient = of;
    element = at;
    return 1.0f;
  }
};

/// An array of a text, whose gradient is wanted. It is read by [] and nothing else: by another
/// pointer to it the derivative would be lost.
template <class Array>
struct ReadArray {
  const Array array;
  float* gradient;
  OneRead& reads;

  ATTNFORGE_DEVICE ReadArray(u64 word, u64 gradient_word, OneRead& one)
      : array(word), gradient(reinterpret_cast<float*>(gradient_word)), reads(one) {}
  template <class Index>
  ATTNFORGE_DEVICE slopes::ScoreWithSlope operator[](Index i) const {
    static_assert(!kReal<Index>, "an index is a whole number");
    return {static_cast<float>(array[i]), reads.slope_of(gradient, static_cast<i64>(i))};
  }
};

/// The derivative of the score that a text makes of s for a row and a key, with respect to a read.
template <class Code, class Row, class Tanh>
ATTNFORGE_DEVICE float slope_of_read(const Row& row, const Tanh& tanh, float s, KeyPosition key,
                                     OneRead& read) {
  return slopes::slope_of(Code::score_of_reads(row.words, tanh, read,
                                               slopes::ScoreWithSlope(s, 0.0f), row.batch, row.head,
                                               row.q, key, row.seqlen_q, row.seqlen_kv));
}

/// Calls add(n, gradient, element, slope) for each read n that the text makes for a row and a key:
/// of which array and element, and the derivative of the score with respect to what was read. `s`
/// is the score that the text takes. Where the compiler knows how many reads there are, so is n.
/// Else any(condition) says how long to go on: with any_lane() all lanes of a warp call add
/// together, those that have made fewer reads with null.
template <class Code, class Row, class Tanh, class Any, class Add>
ATTNFORGE_DEVICE void for_each_read(const Row& row, const Tanh& tanh, float s, int offset,
                                    const Any& any, const Add& add) {
  const auto one = [&](int n) {
    OneRead read{n};
    const float slope = slope_of_read<Code>(row, tanh, s,
                                            row.template key<Code::kScoreReadsByKey>(offset), read);
    add(n, read.gradient, read.element, slope);
    return read.count;
  };
  if constexpr (Code::kMostReads > 0) {
#pragma unroll
    for (int n = 0; n < Code::kMostReads; ++n) one(n);
  } else {
    int count = 1;
#pragma unroll 1
    for (int n = 0; any(n < count); ++n) count = one(n);
  }
}

/// What a lane has added up for one element. Most texts read one that all keys of a row share.
struct ElementSum {
  float* to = nullptr;
  float sum = 0.0f;

  ATTNFORGE_DEVICE void finish() {
    if (sum != 0.0f) atomicAdd(to, sum);
    sum = 0.0f;
  }
  /// All lanes of a warp, of which those without a read have at = null and x = 0. Nothing is
  /// written for x = 0: pairs that are masked, or are none, have that.
  ATTNFORGE_DEVICE void add(float* at, float x) {
    if (at == nullptr) at = to;
    if (!any_lane(at != to)) {
      sum += x;
      return;
    }
    const u64 address = reinterpret_cast<u64>(at);
    if (!any_lane(address != of_lane(address, 0))) {
      if (!any_lane(sum != 0.0f)) {
        to = at, sum = x;
        return;
      }
      x = of_warp(x);
      if (lane() == 0 && x != 0.0f) atomicAdd(at, x);
      return;
    }
    // Lanes with the same key, of rows that are apart.
    if (!any_lane(address != of_lane(address, lane() % 4))) {
      x += __shfl_xor_sync(~0u, x, 4);
      x += __shfl_xor_sync(~0u, x, 8);
      x += __shfl_xor_sync(~0u, x, 16);
      if (lane() < 4 && x != 0.0f) atomicAdd(at, x);
      return;
    }
    if (at != to) finish(), to = at;
    sum += x;
  }
  /// All lanes of a warp, at the end.
  ATTNFORGE_DEVICE void finish_together() {
    const u32 having = lanes_where(sum != 0.0f);
    if (having == 0) return;
    const int first = __ffs(int(having)) - 1;
    const u64 address = reinterpret_cast<u64>(to), address_of_first = of_lane(address, first);
    if (any_lane(sum != 0.0f && address != address_of_first)) return finish();
    sum = of_warp(sum);
    if (lane() == first) atomicAdd(to, sum);
  }

  ATTNFORGE_DEVICE static float of_warp(float x) {
#pragma unroll
    for (int apart = 16; apart > 0; apart /= 2) x += __shfl_xor_sync(~0u, x, apart);
    return x;
  }
  ATTNFORGE_DEVICE static int lane() { return int(threadIdx.x % 32); }
  ATTNFORGE_DEVICE static u64 of_lane(u64 x, int lane) {
    return u64(u32(from_lane(int(x >> 32), lane))) << 32 | u32(from_lane(int(x), lane));
  }
};

/// Dargs of scores after Before. Code is the entry's, Row what its texts see of a row.
template <class Code, class Row, class Before = PlainScore>
struct DargsOfRows {
  /// A lane's sums, for kRows rows.
  template <int kRows>
  struct Sums {
    static constexpr int kSlots = Code::kMostReads > 0 ? Code::kMostReads : 1;
    ElementSum of[kSlots][kRows];

    ATTNFORGE_DEVICE void finish() {
#pragma unroll
      for (int n = 0; n < kSlots; ++n) {
#pragma unroll
        for (int r = 1; r < kRows; ++r) {
          if (of[n][r].to != of[n][0].to) continue;
          of[n][0].sum += of[n][r].sum;
          of[n][r].sum = 0.0f;
        }
        unrolled<kRows>([&](int r) { of[n][r].finish_together(); });
      }
    }
  };

  /// All lanes of a warp: what the pairs of a tile add, whose scores before Score, probabilities
  /// and dP (dout v) these are, delta that of the lane's rows. view_of(array) is what Score takes;
  /// `row` and `first_key` are of a lane's first.
  template <class Scores, int kRowFragments, class ViewOf, class QueryTile>
  ATTNFORGE_DEVICE static void add(Sums<2 * kRowFragments>& sums, const Scores& scores,
                                   const Scores& p, const Scores& dp,
                                   const float (&delta)[kRowFragments][2], const ViewOf& view_of,
                                   const QueryTile& tile, int row, int first_key) {
    Scores before;
    copy_scores(scores, before);
    Before::apply(view_of(before), tile);
    const int lane_key = first_key + MmaFragment::column(ElementSum::lane());
    constexpr int kKeyFragments = sizeof(Scores) / sizeof(float) / 4 / kRowFragments;
    unrolled<kRowFragments, 2>([&](int f, int r) {
      const Row user(tile, row + 16 * f + 8 * r, lane_key);
      unrolled<kKeyFragments, 2>([&](int j, int c) {
        const int i = 2 * r + c;
        // What lies where nothing is seen may be no number.
        const float ds = p[f][j][i] == 0.0f ? 0.0f : p[f][j][i] * (dp[f][j][i] - delta[f][r]);
        const auto add_read = [&](int n, float* gradient, i64 element, float slope) {
          const float x = gradient == nullptr || ds == 0.0f ? 0.0f : ds * slope;
          sums.of[Code::kMostReads > 0 ? n : 0][2 * f + r].add(
              gradient == nullptr ? nullptr : gradient + element, x);
        };
        for_each_read<Code>(
            user, slopes::TanhWithSlope<QuotientTanh>(),
            before[f][j][i] * tile.params.fwd.softmax_scale, j * 8 + c,
            [](bool more) { return any_lane(more); }, add_read);
      });
    });
  }

  /// Whether queries of a tile add to the same elements: add_keys() is for these; and whether dS of
  /// scores before the text are those of what it makes of them.
  static constexpr bool kWithoutQuery = Code::kReadsWithoutQuery, kSlopeIsOne = Code::kSlopeIsOne;

  /// All lanes of a warp: what the queries of a tile add to elements that they share. `ds`: the
  /// derivatives of the loss by the text's scores; `scores`: those before Score. Both as
  /// transposed scores.
  template <class View, class QueryTile>
  ATTNFORGE_DEVICE static void add_keys(const View& ds, const View& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    constexpr int kFragments = sizeof(ds.all) / (4 * sizeof(float));
    const int lane_row = ds.first_row + MmaFragment::column(ElementSum::lane());
    const int lane_key = Row::unknown(ds.lane_key);
    const auto key_of = [](const Row& user, int r) {
      return user.template key<Code::kScoreReadsByKey>(8 * r);
    };
    const slopes::TanhWithSlope<QuotientTanh> tanh;
    float sums[Code::kMostReads][2] = {};
    unrolled<kFragments, 2>([&](int j, int c) {
      // What the compiler knows to be the same for all queries it computes once.
      const Row user(tile, lane_row + 8 * j + c, lane_key, true);
      unrolled<2>([&](int r) {
        const float x = ds.all[j][2 * r + c];
        const float s = scores.all[j][2 * r + c] * tile.params.fwd.softmax_scale;
        unrolled<Code::kMostReads>([&](int n) {
          OneRead read{n};
          const float slope = slope_of_read<Code>(user, tanh, s, key_of(user, r), read);
          sums[n][r] += x == 0.0f ? 0.0f : x * slope;
        });
      });
    });
    const Row user(tile, lane_row, lane_key, true);
    unrolled<Code::kMostReads>([&](int n) {
      float* to[2];
      unrolled<2>([&](int r) {
        OneRead read{n};
        slope_of_read<Code>(user, tanh, 0.0f, key_of(user, r), read);
        to[r] = read.gradient == nullptr ? nullptr : read.gradient + read.element;
      });
      add_sums(to, sums[n]);
    });
  }
  /// All lanes of a warp: sums of two keys, which four lanes have parts of; nowhere, of a read that
  /// the text has and does not make.
  ATTNFORGE_DEVICE static void add_sums(float* const (&to)[2], const float (&sums)[2]) {
    const u64 first = ElementSum::of_lane(reinterpret_cast<u64>(to[0]), 0);
    if (!any_lane(to[0] != nullptr)) return;
    if (!any_lane(reinterpret_cast<u64>(to[0]) != first || to[1] != to[0])) {
      const float x = ElementSum::of_warp(sums[0] + sums[1]);
      if (ElementSum::lane() == 0 && x != 0.0f) atomicAdd(to[0], x);
      return;
    }
    unrolled<2>([&](int r) {
      float x = sums[r];
      x += __shfl_xor_sync(~0u, x, 1);
      x += __shfl_xor_sync(~0u, x, 2);
      if (ElementSum::lane() % 4 == 0 && x != 0.0f) atomicAdd(to[r], x);
    });
  }

  /// What the dS of a tile add to the gradient of an aligned array, which a text adds to its score:
  /// elements of pairs that are neighbours are neighbours. `ds`: as Score takes transposed scores.
  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void add_rows(const Scores& ds, const QueryTile& tile) {
    const int rows = tile.lengths.q(), keys = tile.lengths.kv();
    ds.for_each([&](int row, int lane_key) {
      const Row user(tile, row, lane_key);
      float* const to = place_in_gradient<float>(tile, row, lane_key);
      return [=](float x, int offset) {
        OneRead read{0};
        const float slope = slope_of_read<Code>(user, slopes::TanhWithSlope<QuotientTanh>(), 0.0f,
                                                user.template key<true>(offset), read);
        if (row < rows && lane_key + offset < keys && x != 0.0f) reduce_add(to + offset, x * slope);
        return x;
      };
    });
  }

  /// Where the gradient of an element that is read by rows lies.
  template <class T, class QueryTile>
  ATTNFORGE_DEVICE static T* place_in_gradient(const QueryTile& tile, int row, int key) {
    OneRead first{0};
    slope_of_read<Code>(Row(tile, row, key), slopes::TanhWithSlope<QuotientTanh>(), 0.0f,
                        KeyPosition{key, 0}, first);
    return reinterpret_cast<T*>(first.gradient) + first.element;
  }

  /// One thread, for a pair that is seen and whose score is scaled and capped already: calls
  /// add(gradient, element, slope) for each read.
  template <class Params, class Lengths, class Add>
  ATTNFORGE_DEVICE static void of_pair(const Params& params, const Lengths& lengths, int sequence,
                                       int head, int query, int key, float s, const Add& add) {
    for_each_read<Code>(
        Row(params, lengths, sequence, head, query, key), slopes::TanhWithSlope<ExactTanh>(), s, 0,
        [](bool more) { return more; },
        [&](int, float* gradient, i64 element, float slope) {
          if (gradient != nullptr) add(gradient, element, slope);
        });
  }
};

}  // namespace attnforge
