// packed_tiles.cuh - tiles of packed sequences by number: the number leads to the sequence, without
// a list of them.
#pragma once

#include "base.cuh"

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

}  // namespace attnforge
