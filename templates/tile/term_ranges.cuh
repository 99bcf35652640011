// term_ranges.cuh - comparisons of a range of values with another: they hold for all pairs, for
// none, or for some of them.
#pragma once

#include "base.cuh"
#include "ptx/shuffle.cuh"

namespace attnforge {

/// The same names as MaskTerm::Relation.
enum class TermRelation { kEqual, kUnequal, kBelow, kAtMost, kAbove, kAtLeast };

/// The least and the greatest of some values of lanes. T is int or float.
template <class T>
struct TermRange {
  static constexpr bool kKnown = true;
  T low, high;
  bool ordered;  // none of them is not a number

  ATTNFORGE_DEVICE static TermRange of(T x) { return {x, x, x == x}; }
  ATTNFORGE_DEVICE void add(T x) {
    low = min(low, x), high = max(high, x);
    ordered = ordered && x == x;
  }
  /// Joined over lanes whose numbers differ in the bits of kMask and those below.
  template <int kMask>
  ATTNFORGE_DEVICE void join_lanes() {
    add(shuffled<kMask>(low));
    add(shuffled<kMask>(high));
    ordered = ordered && shuffle_xor<kMask>(u32(ordered)) != 0;
    if constexpr (kMask > 1) join_lanes<kMask / 2>();
  }

 private:
  template <int kMask>
  ATTNFORGE_DEVICE static T shuffled(T x) {
    if constexpr (T(1) / T(2) == T(0))
      return T(shuffle_xor<kMask>(u32(x)));
    else
      return shuffle_xor<kMask>(x);
  }
};
/// Of values of another type: nothing is told of them.
struct NoTermRange {
  static constexpr bool kKnown = false;

  template <class T>
  ATTNFORGE_DEVICE static NoTermRange of(T) { return {}; }
  template <class T>
  ATTNFORGE_DEVICE void add(T) {}
  template <int kMask>
  ATTNFORGE_DEVICE void join_lanes() {}
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
      case TermRelation::kEqual: return {apart, same};
      case TermRelation::kUnequal: return {same, apart};
      case TermRelation::kBelow: return {!(q.low < k.high), q.high < k.low};
      case TermRelation::kAtMost: return {!(q.low <= k.high), q.high <= k.low};
      case TermRelation::kAbove: return {!(q.high > k.low), q.low > k.high};
      default: return {!(q.high >= k.low), q.low >= k.high};
    }
  }
}

}  // namespace attnforge
