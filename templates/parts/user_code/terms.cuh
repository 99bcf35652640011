// terms.cuh - the terms of the user's mask text that compare something of the query with something
// of the key, for a step that asks many pairs at once: comparisons of a range of values with
// another hold for all pairs, for none, or for some of them.
#pragma once

#include "parts/user_code/code.cuh"

namespace attnforge {

/// Relations with the names of PairTerm::Relation.
enum class TermRelation { kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast };

/// An int for each float, in the same order, and back.
ATTNFORGE_DEVICE int ordered_int(int x) { return x; }
ATTNFORGE_DEVICE int ordered_int(float x) {
  const int bits = int(__float_as_uint(x));
  return bits ^ (bits >> 31 & 0x7fffffff);
}
template <class T>
ATTNFORGE_DEVICE T from_ordered_int(int x) {
  if constexpr (T(1) / T(2) == T(0))
    return x;
  else
    return __uint_as_float(u32(x ^ (x >> 31 & 0x7fffffff)));
}

/// The least and the greatest of some values of lanes. T is int or float.
template <class T>
struct TermRange {
  static constexpr bool kKnown = true;
  T low, high;
  bool ordered;  // all of them are numbers

  ATTNFORGE_DEVICE static TermRange of(T x) { return {x, x, x == x}; }
  ATTNFORGE_DEVICE void add(T x) {
    low = min(low, x), high = max(high, x);
    ordered = ordered && x == x;
  }
  /// Joined over the lanes of `lanes`, of which this is one.
  ATTNFORGE_DEVICE void join(u32 lanes) {
    low = from_ordered_int<T>(__reduce_min_sync(lanes, ordered_int(low)));
    high = from_ordered_int<T>(__reduce_max_sync(lanes, ordered_int(high)));
    if constexpr (T(1) / T(2) != T(0)) ordered = __reduce_and_sync(lanes, u32(ordered)) != 0;
  }
};
/// The range of values of another type: nothing is known of them.
struct NoTermRange {
  static constexpr bool kKnown = false;

  template <class T>
  ATTNFORGE_DEVICE static NoTermRange of(T) {
    return {};
  }
  template <class T>
  ATTNFORGE_DEVICE void add(T) {}
  ATTNFORGE_DEVICE void join(u32) {}
};

template <class T>
struct RangeOfType {
  using Type = NoTermRange;
};
template <>
struct RangeOfType<bool> {
  using Type = TermRange<int>;
};
template <>
struct RangeOfType<int> {
  using Type = TermRange<int>;
};
template <>
struct RangeOfType<float> {
  using Type = TermRange<float>;
};

/// For how many pairs a comparison holds.
struct TermVerdict {
  bool none, all;
};

/// C++ compares an int with a float as floats: that keeps the order, so ends stand for what lies
/// between them.
template <class Q, class K>
ATTNFORGE_DEVICE TermVerdict verdict_of(TermRelation relation, const Q& q, const K& k) {
  if constexpr (!Q::kKnown || !K::kKnown) {
    return {false, false};
  } else {
    if (!q.ordered || !k.ordered) return {false, false};
    const bool apart = q.high < k.low || k.high < q.low;
    const bool same = q.low == q.high && k.low == k.high && q.low == k.low;
    switch (relation) {
      case TermRelation::kEqual:
        return {apart, same};
      case TermRelation::kUnequal:
        return {same, apart};
      case TermRelation::kBelow:
        return {!(q.low < k.high), q.high < k.low};
      case TermRelation::kAtMost:
        return {!(q.low <= k.high), q.high <= k.low};
      case TermRelation::kAbove:
        return {!(q.high > k.low), q.low > k.high};
      case TermRelation::kAtLeast:
        break;
    }
    return {!(q.high >= k.low), q.low >= k.high};
  }
}

/// The same for many ranges of rows and one of keys: bit f is that of rows f.
struct TermVerdicts {
  u32 none, all;

  ATTNFORGE_DEVICE static TermVerdicts unknown() { return {0, 0}; }
};
ATTNFORGE_DEVICE TermVerdicts both(TermVerdicts a, TermVerdicts b) {
  return {a.none | b.none, a.all & b.all};
}
ATTNFORGE_DEVICE TermVerdicts either(TermVerdicts a, TermVerdicts b) {
  return {a.none & b.none, a.all | b.all};
}
ATTNFORGE_DEVICE TermVerdicts opposite(TermVerdicts a) { return {a.all, a.none}; }

/// Code is that of a step.
template <class Code>
struct UserTerms {
  static constexpr int kCount = Code::kTerms;
  ATTNFORGE_DEVICE static constexpr TermRelation relation(int term) { return Code::relation(term); }

  /// The text's, of those of its terms.
  ATTNFORGE_DEVICE static TermVerdicts value(const TermVerdicts* of_terms) {
    return Code::value_of_terms(of_terms);
  }

  template <int kTerm, class Params, class Lengths>
  ATTNFORGE_DEVICE static auto of_query(const Params& params, const Lengths& lengths, int sequence,
                                        int head, int query) {
    return Code::template term_of_query<kTerm>(params.code, sequence, head, query, lengths.q(),
                                               lengths.kv());
  }
  template <int kTerm, class Params, class Lengths>
  ATTNFORGE_DEVICE static auto of_key(const Params& params, const Lengths& lengths, int sequence,
                                      int head, int key) {
    return Code::template term_of_key<kTerm>(params.code, sequence, head, key, lengths.q(),
                                             lengths.kv());
  }
};

}  // namespace attnforge
