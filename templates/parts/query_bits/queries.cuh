// queries.cuh - Queries of a backward kernel under a block mask or a mask's text: of the query
// tiles that windows let see a key tile, those that the mask does, by the bits that a step wrote.
#pragma once

#include "backward/query_walk.cuh"
#include "parts/query_bits/bits.cuh"

namespace attnforge {

/// Window is the QueryWalk. Heads have lists of their own.
template <class Window, int kBlockM, int kBlockN, class Masks = MasksOfBlocks>
struct ListedQueries : Window {
  static constexpr bool kListed = true;

  const u32* lists;  // of the key tile, for mask head 0 of the sequence
  i64 words_of_head;
  int mask_heads, num_heads_q;
  int first_head, end_head;

  template <class Params, class Tile>
  ATTNFORGE_DEVICE static ListedQueries of_tile(const Params& params, const Tile& keys, int, int) {
    const QueryTileBits bits = query_tile_bits<kBlockM, kBlockN, Masks>(params);
    const int sequence = bits.batch == 1 ? 0 : keys.sequence;
    const i64 list = i64(sequence) * bits.heads * bits.key_tiles + keys.first_key / kBlockN;
    return {Window::of_tile(params, keys, kBlockM, kBlockN),
            query_tile_words(params, bits) + list * bits.words * 2,
            i64(bits.key_tiles) * bits.words * 2,
            bits.heads,
            keys.params.fwd.num_heads_q,
            keys.first_query_head(),
            keys.first_query_head() + keys.group()};
  }

  // The lists are there once the grid before has ended.

  ATTNFORGE_DEVICE int count() const {
    int sum = 0;
    if (this->begin >= this->end) return sum;  // the keys may begin after the last
#pragma unroll 1
    for (int head = first_head; head < end_head; ++head)
#pragma unroll 1
      for (int w = this->begin / 32; w * 32 < this->end; ++w) sum += __popc(seen(head, w));
    return sum;
  }
  /// The first place at this one or after it; {end_head, begin}: there is none.
  ATTNFORGE_DEVICE QueryPlace at_or_after(QueryPlace place) const {
    if (this->begin >= this->end) return {end_head, this->begin};
#pragma unroll 1
    for (; place.head < end_head; ++place.head, place.m = this->begin)
#pragma unroll 1
      for (int w = place.m / 32; w * 32 < this->end; ++w) {
        u32 bits = seen(place.head, w);
        if (w == place.m / 32) bits &= ~0u << (place.m % 32);
        if (bits != 0) return {place.head, w * 32 + __ffs(int(bits)) - 1};
      }
    return {end_head, this->begin};
  }
  /// The last place before this one, if there is one.
  ATTNFORGE_DEVICE QueryPlace before(QueryPlace place) const {
#pragma unroll 1
    for (; place.head >= first_head; --place.head, place.m = this->end)
#pragma unroll 1
      for (int w = (place.m - 1) / 32; place.m > 0 && w >= this->begin / 32; --w) {
        u32 bits = seen(place.head, w);
        if (w == (place.m - 1) / 32) bits &= ~0u >> (31 - (place.m - 1) % 32);
        if (bits != 0) return {place.head, w * 32 + 31 - __clz(int(bits))};
      }
    return {first_head, this->begin};
  }
  ATTNFORGE_DEVICE QueryPlace first() const { return at_or_after({first_head, this->begin}); }
  ATTNFORGE_DEVICE QueryPlace after(const QueryPlace& place) const {
    return at_or_after({place.head, place.m + 1});
  }
  ATTNFORGE_DEVICE QueryPlace last() const { return before({end_head - 1, this->end}); }

  ATTNFORGE_DEVICE bool masked(const QueryPlace& place) const {
    return Window::masked(place.m) ||
           (words_of(place.head)[place.m / 32 * 2 + 1] >> (place.m % 32) & 1) != 0;
  }

 private:
  ATTNFORGE_DEVICE const u32* words_of(int head) const {
    // Heads are at most 65535, so their product fits 32 bits without a sign.
    const unsigned mask_head = unsigned(head) * unsigned(mask_heads) / unsigned(num_heads_q);
    return lists + mask_head * words_of_head;
  }
  /// Those of 32 query tiles that some window and block let see the keys.
  ATTNFORGE_DEVICE u32 seen(int head, int word) const {
    u32 bits = words_of(head)[word * 2];
    const int first = this->begin - word * 32, end = this->end - word * 32;
    if (first > 0) bits &= ~0u << first;
    if (end < 32) bits &= (1u << end) - 1;
    return bits;
  }
};

}  // namespace attnforge
