// key_tile.cuh - the keys that a block of a backward kernel works on: of which sequence and K/V
// head, and where they and the queries of that head's group lie in tensors.
#pragma once

#include "backward/scratch.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// The queries of a head that share keys, for pieces that take a QueryTile and ask where no row
/// lies: a row is a query.
template <class Params, class LengthsPiece>
struct QueriesOfHead {
  using Lengths = LengthsPiece;

  const Params& params;
  const Lengths& lengths;
  int batch;
  int head;

  ATTNFORGE_DEVICE static int query_of(int row) { return row; }
  ATTNFORGE_DEVICE int query_head_of(int) const { return head; }
};

/// Keys from first_key on of a sequence. Params is the kernel's argument, Lengths a piece of it.
/// kListed: bwd_rows has listed the key tiles of packed sequences.
template <class Params, class LengthsPiece, bool kListed = false>
struct KeyTile {
  using Lengths = LengthsPiece;

  const Params& params;
  int sequence;
  int kv_head;
  int first_key;
  Lengths lengths;

  /// A place's m_block counts tiles of block_n keys, its head K/V heads of all sequences; where
  /// these are packed, tiles of all of them (backward/scratch.cuh), and K/V heads of one. The
  /// tile may begin after the last key.
  ATTNFORGE_DEVICE KeyTile(const Params& of_kernel, const TilePlace& place, int block_n)
      : KeyTile(of_kernel, tile_at(of_kernel, place, block_n), place.head, block_n) {}

  ATTNFORGE_DEVICE static int query_of(int row) { return row; }
  ATTNFORGE_DEVICE QueriesOfHead<Params, Lengths> queries_of(int head) const {
    return {params, lengths, sequence, head};
  }
  /// Query heads that share the keys: `group()` of them from first_query_head() on.
  ATTNFORGE_DEVICE int group() const {
    return quotient(params.fwd.num_heads_q, params.fwd.num_heads_kv);
  }
  ATTNFORGE_DEVICE int first_query_head() const { return kv_head * group(); }

  /// Where a key begins in a tensor of keys, in elements, and a query of a head in one of queries.
  ATTNFORGE_DEVICE i64 key_offset(const TensorRef& tensor, int key) const {
    return lengths.batch() * tensor.stride_batch + kv_head * tensor.stride_head +
           i64(lengths.kv_begin() + key) * tensor.stride_row;
  }
  ATTNFORGE_DEVICE i64 query_offset(const TensorRef& tensor, int head, int query) const {
    return lengths.batch() * tensor.stride_batch + head * tensor.stride_head +
           i64(lengths.q_begin() + query) * tensor.stride_row;
  }

 private:
  ATTNFORGE_DEVICE static auto tile_at(const Params& params, const TilePlace& place, int block_n) {
    if constexpr (!is_packed<Lengths>()) {
      return SequenceTile{quotient(place.head, params.fwd.num_heads_kv), place.m_block};
    } else if constexpr (kListed) {
      if (lists_key_tiles(params)) return key_tile_list<Lengths>(params)[1 + place.m_block];
      const SequenceTile at = packed_tile(Lengths::kv_begins(params), params.fwd.batch, block_n,
                                          place.m_block);
      return ListedKeyTile<Lengths>{at.sequence, at.tile, Lengths(params, at.sequence)};
    } else {
      return packed_tile(Lengths::kv_begins(params), params.fwd.batch, block_n, place.m_block);
    }
  }
  ATTNFORGE_DEVICE KeyTile(const Params& of_kernel, const SequenceTile& tile, int head, int block_n)
      : params(of_kernel),
        sequence(tile.sequence),
        kv_head(is_packed<Lengths>() ? head : head - sequence * params.fwd.num_heads_kv),
        first_key(tile.tile * block_n),
        lengths(params, sequence) {}
  ATTNFORGE_DEVICE KeyTile(const Params& of_kernel, const ListedKeyTile<Lengths>& tile, int head,
                           int block_n)
      : params(of_kernel),
        sequence(tile.sequence),
        kv_head(head),
        first_key(tile.tile * block_n),
        lengths(tile.lengths) {}
};

}  // namespace attnforge
