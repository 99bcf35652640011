// mask.cuh - Mask by the user's text, of keys that another Mask lets a row see.
#pragma once

#include "parts/user_code/code.cuh"
#include "ptx/special.cuh"

namespace attnforge {

/// The text alone, as the rule of a ListMask. Code is the entry's UserCode, or that of a step.
template <class Code>
struct UserRule {
  static constexpr bool kNone = false;
  static constexpr bool kReadsRows = requires { &Code::place_of_mask; };

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    scores.for_each([&](int row, int lane_key) {
      const UserRow<Code> user(tile, row, lane_key);
      return [user](float s, int offset) { return user.mask(offset) ? s : negative_infinity(); };
    });
  }

  /// A function of i: whether the text lets a query see key first_key + i, which must be there.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static auto of_row(const Params& params, const Lengths& lengths, int sequence,
                                      int head, int query, int first_key) {
    const UserRow<Code> user(params, lengths, sequence, head, query, first_key);
    return [user](int i) { return user.mask_of_present(i); };
  }
  /// kReadsRows: where its boolean is for a query and a key.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static const bool* place(const Params& params, const Lengths& lengths,
                                            int sequence, int head, int query, int key) {
    return Code::place_of_mask(params.code, sequence, head, query, KeyPosition{key, 0}, lengths.q(),
                               lengths.kv());
  }
  /// Whether the text lets a query see a key.
  template <class Params, class Lengths>
  ATTNFORGE_DEVICE static bool of_pair(const Params& params, const Lengths& lengths, int sequence,
                                       int head, int query, int key) {
    return UserRow<Code>(params, lengths, sequence, head, query, key).mask(0);
  }
};

/// Before: the window's Mask.
template <class Code, class Before>
struct UserMask : Before {
  using Rule = UserRule<Code>;

  template <class Scores, class QueryTile>
  ATTNFORGE_DEVICE static void apply(const Scores& scores, const QueryTile& tile) {
    Before::apply(scores, tile);
    Rule::apply(scores, tile);
  }
};

/// Code is the entry's UserCode.
template <class Code>
struct BlockText {
  template <class QueryTile>
  ATTNFORGE_DEVICE static auto of_row(const QueryTile& tile, int row, int lane_key) {
    const UserRow<Code> user(tile, row, lane_key);
    return [user](int offset) { return user.mask(offset); };
  }
};

}  // namespace attnforge
