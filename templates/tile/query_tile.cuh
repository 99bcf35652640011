// query_tile.cuh - the query rows of a block: of which sequence and head, and where in a tensor.
#pragma once

#include "ptx/shared_memory.cuh"
#include "ptx/shuffle.cuh"
#include "tile/tile_order.cuh"

namespace attnforge {

/// Rows from first_row on of a head's, kMostRows where a kernel computes more. With kPackGqa > 1
/// the query heads of a K/V head are in one tile: row r is query r / kPackGqa of query head head *
/// kPackGqa + r % kPackGqa. kEarly: the first tile may begin before row 0 (early_rows()). Params is
/// the kernel's argument, where pieces find their own parts; Lengths is a piece of the kernel.
template <class Params, int kPackGqa, class LengthsPiece, int kMostRows = 0, bool kEarly = false>
struct QueryTile {
  using Lengths = LengthsPiece;

  const Params& params;
  int batch;
  int head;       // a query head, or a K/V head when heads are packed
  int first_row;  // among a head's rows; heads packed into the tile lie next to each other
  Lengths lengths;

  ATTNFORGE_DEVICE QueryTile(const Params& of_kernel, int sequence, int its_head, int row,
                             const Lengths& its_lengths)
      : params(of_kernel), batch(sequence), head(its_head), first_row(row), lengths(its_lengths) {}

  /// Tiles have block_m rows.
  ATTNFORGE_DEVICE QueryTile(const Params& of_kernel, const TilePlace& place, int block_m)
      : params(of_kernel),
        batch(place.head / heads(params.fwd)),
        head(place.head - batch * heads(params.fwd)),
        first_row(place.m_block * block_m),
        lengths(params, batch) {
    if constexpr (kEarly) {
      const int diagonal = lengths.kv() - lengths.q() + params.fwd.window_right;
      first_row -= early_rows(lengths.q(), diagonal, block_m);
    }
  }

  QueryTile(const QueryTile&) = default;
  /// Assigns a tile of the same kernel.
  ATTNFORGE_DEVICE QueryTile& operator=(const QueryTile& other) {
    batch = other.batch;
    head = other.head;
    first_row = other.first_row;
    lengths = other.lengths;
    return *this;
  }

  // This tile as words in shared memory.
  static constexpr int kWords = 3 + Lengths::kWords;
  ATTNFORGE_DEVICE void store(u32 to) const {
    store_shared(to, batch);
    store_shared(to + 4, head);
    store_shared(to + 8, first_row);
    lengths.store(to + 12);
  }
  ATTNFORGE_DEVICE static QueryTile load(const Params& params, u32 from) {
    return {params, from_lane_0(load_shared(from)), from_lane_0(load_shared(from + 4)),
            from_lane_0(load_shared(from + 8)),
            Lengths::load(params, from_lane_0(load_shared(from)), from + 12)};
  }

  ATTNFORGE_DEVICE static int heads(const FwdParams& p) {
    return kPackGqa > 1 ? p.num_heads_kv : p.num_heads_q;
  }
  ATTNFORGE_DEVICE int kv_head() const {
    return kPackGqa > 1 ? head
                        : quotient(head, quotient(params.fwd.num_heads_q, params.fwd.num_heads_kv));
  }
  ATTNFORGE_DEVICE static int query_of(int row) { return row / kPackGqa; }
  ATTNFORGE_DEVICE int query_head_of(int row) const {
    return kPackGqa > 1 ? head * kPackGqa + row % kPackGqa : head;
  }
  /// After the last row of the head, or of the tile.
  ATTNFORGE_DEVICE int end_row() const {
    return min(lengths.q() * kPackGqa, kMostRows > 0 ? first_row + kMostRows : 0x7fffffff);
  }

  /// Whether a row of the tile is one of the head's.
  ATTNFORGE_DEVICE bool has(int row) const { return row < end_row() && (!kEarly || row >= 0); }
  /// Whether any of `rows` rows from `row` on is.
  ATTNFORGE_DEVICE bool has_any(int row, int rows) const {
    return row < end_row() && (!kEarly || row + rows > 0);
  }

  /// Where a row begins in a tensor of queries, in elements.
  ATTNFORGE_DEVICE i64 offset_of(const TensorRef& tensor, int row) const {
    return lengths.batch() * tensor.stride_batch +
           (lengths.q_begin() + query_of(row)) * tensor.stride_row +
           query_head_of(row) * tensor.stride_head;
  }
  /// And in lse.
  ATTNFORGE_DEVICE i64 lse_offset_of(int row) const {
    return lengths.batch() * params.fwd.lse_stride_batch +
           query_head_of(row) * params.fwd.lse_stride_head + (lengths.q_begin() + query_of(row));
  }
};

}  // namespace attnforge
