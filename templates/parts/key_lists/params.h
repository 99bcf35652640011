// params.h - which keys each query tile walks over, where a mask decides that: lists
// that a step writes and the kernel after it reads. Compiled by g++ (launch) and NVRTC (kernels).
#pragma once

#include "base.cuh"
#include "shape.h"

namespace attnforge {

/// A group of neighbouring keys in the list of a query tile, and what the tile's rows see of it. A
/// fragment is 16 rows of the tile.
struct KeyGroup {
  u32 number;  // of the group, counted from key 0; kEdge: windows or the last key hide some of it
  u32 rows;    // bit f: fragment f sees some of it; bit 16 + f: and only what the mask's rule says

  static constexpr u32 kEdge = 1u << 31;
  static constexpr int kMostFragments = 16;
};

/// 32-bit words of a row of KeyListParams::bits, and of the 16 rows of a fragment.
template <int kGroupKeys>
inline constexpr int kTextBitsRowWords = Shape::bits_row_words(kGroupKeys);
template <int kGroupKeys>
inline constexpr int kTextBitsWords = 16 * kTextBitsRowWords<kGroupKeys>;

/// In the argument of a kernel, after the family's own. The lists lie in the workspace, for query
/// tile m of mask head h of mask sequence b at (b * heads + h) * m_blocks + m.
struct alignas(16) KeyListParams {
  KeyGroup* groups;  // [lists, capacity], ascending, in whole key tiles: the last one is filled up
                     // with groups that lie after all keys and that no row sees
  int* counts;       // [lists], key tiles
  u32* states;       // [lists, groups of a sequence]: KeyGroup::rows of each by the mask's text
  u32* bits;         // [lists, groups, fragments, 16, kTextBitsRowWords]: of a row, bit k % 32 of
                     // word k / 32 says whether it sees key k of the group; of partial fragments
  i64 capacity;      // most groups of a list
  int m_blocks;      // query tiles of a head
  int heads;         // 1, num_heads_kv or num_heads_q
  int batch;         // 1 or batch
  int unused;
  u32* parts;  // [lists, warpgroups]: which tiles each 64 rows see (WalkPart), of a mask's text
};

/// The argument of a kernel that gathers its keys.
template <class Params>
struct WithKeyLists : Params {
  KeyListParams lists;
};

}  // namespace attnforge
