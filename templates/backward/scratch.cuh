// scratch.cuh - where the rows of a sequence lie in the scratch of a backward kernel: packed
// sequences are one to it, and the number of a tile leads to its sequence, without a list of them.
#pragma once

#include "backward/params.h"

namespace attnforge {

/// Whether sequences lie one after another: `Lengths` is a piece of the kernel.
template <class Lengths>
ATTNFORGE_DEVICE constexpr bool is_packed() {
  return requires { Lengths::kOneAfterAnother; };
}

/// A tile of a sequence.
struct SequenceTile {
  int sequence, tile;
};

/// Tiles of `rows` rows of sequences that begin at begins[0 .. batch - 1]. Each has as many numbers
/// as its rows fill, or one more: sequence s has those from begins[s] / rows + s on. So no sum over
/// sequences is needed, and there are no more than begins[batch] / rows + batch. The last numbers
/// of a sequence may be tiles after its end.
ATTNFORGE_DEVICE int first_packed_tile(int begin, int sequence, int rows) {
  return begin / rows + sequence;
}
ATTNFORGE_DEVICE SequenceTile packed_tile(const int* begins, int batch, int rows, int number) {
  int low = 0, end = batch;  // the sequence is one of low to end - 1
#pragma unroll 1
  while (end - low > 1) {
    const int middle = (low + end) / 2;
    if (first_packed_tile(begins[middle], middle, rows) <= number)
      low = middle;
    else
      end = middle;
  }
  return {low, number - first_packed_tile(begins[low], low, rows)};
}

/// A key tile of packed sequences, as bwd_rows lists them where a kernel asks for that (BwdSteps):
/// a block that looks for its tile and the lengths by one load after another has some query tiles
/// in the same time.
template <class Lengths>
struct alignas(16) ListedKeyTile {
  int sequence, tile;
  Lengths lengths;
};

/// The list, behind the last delta: an int that says how many there are, and from the next place on
/// these. None is without keys, but for the only one where there are no keys at all.
template <class Lengths, class Params>
ATTNFORGE_DEVICE ListedKeyTile<Lengths>* key_tile_list(const Params& params) {
  static_assert(sizeof(ListedKeyTile<Lengths>) == listed_key_tile_bytes());
  return reinterpret_cast<ListedKeyTile<Lengths>*>(
      params.scratch.delta + i64(params.fwd.num_heads_q) * params.scratch.rows_padded);
}
template <class Lengths, class Params>
ATTNFORGE_DEVICE int* listed_key_tiles(const Params& params) {
  return &key_tile_list<Lengths>(params)->sequence;
}
/// Without queries nobody has written the list.
template <class Params>
ATTNFORGE_DEVICE bool lists_key_tiles(const Params& params) {
  return params.scratch.rows_padded != 0;
}
/// How many key tiles a head of params.order has.
template <class Lengths, class Params>
ATTNFORGE_DEVICE int key_tiles_of_head(const Params& params) {
  if constexpr (is_packed<Lengths>()) {
    if (lists_key_tiles(params)) return *listed_key_tiles<Lengths>(params);
  }
  return params.order.m_blocks;
}

/// Number `number` of the tiles of `rows` queries that lie in one piece in BwdScratch: those of a
/// sequence `stored`, or of all packed ones.
template <class Lengths, class Params>
ATTNFORGE_DEVICE SequenceTile scratch_tile(const Params& params, int stored, int rows, int number) {
  if constexpr (is_packed<Lengths>())
    return packed_tile(Lengths::q_begins(params), params.fwd.batch, rows, number);
  else
    return {stored, number};
}

/// The same of a number that is not before the tiles of `sequence`, and not far behind.
template <class Lengths, class Params>
ATTNFORGE_DEVICE SequenceTile later_scratch_tile(const Params& params, int sequence, int rows,
                                                 int number) {
  if constexpr (is_packed<Lengths>()) {
    const int* const begins = Lengths::q_begins(params);
    while (sequence + 1 < params.fwd.batch &&
           first_packed_tile(begins[sequence + 1], sequence + 1, rows) <= number)
      ++sequence;
    return {sequence, number - first_packed_tile(begins[sequence], sequence, rows)};
  } else {
    return {sequence, number};
  }
}

/// Where a sequence's queries begin among the rows of BwdScratch that a head has. Query tiles have
/// kBlockM rows.
template <int kBlockM, class Lengths>
ATTNFORGE_DEVICE int scratch_row_in_head(const Lengths& lengths, int sequence) {
  if constexpr (is_packed<Lengths>())
    return first_packed_tile(lengths.q_begin(), sequence, kBlockM) * kBlockM;
  else
    return 0;
}

/// The first row of a head's.
template <class Lengths>
ATTNFORGE_DEVICE i64 scratch_row_of_head(const FwdParams& p, const BwdScratch& scratch,
                                         const Lengths& lengths, int head) {
  return (i64(lengths.batch()) * p.num_heads_q + head) * scratch.rows_padded;
}

}  // namespace attnforge
