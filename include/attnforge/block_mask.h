// block_mask.h - block masks in host memory: made from lists, from dense masks and by generators,
// checked, counted and drawn.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Blocks of block_q queries and block_kv keys over Q K^T: block row i is of queries i * block_q
/// and on, block column j of keys j * block_kv and on, up to the end of the sequence.
struct BlockMaskShape {
  int block_q = 128;  // 16, 32, 64 or 128
  int block_kv = 128;
  std::int64_t seqlen_q = 0;
  std::int64_t seqlen_kv = 0;
  std::int64_t heads = 1;  // with a mask of their own: 1, num_heads_kv or num_heads_q
  std::int64_t batch = 1;  // sequences with one of their own

  std::int64_t q_blocks() const { return (seqlen_q + block_q - 1) / block_q; }
  std::int64_t kv_blocks() const { return (seqlen_kv + block_kv - 1) / block_kv; }
  /// Rows of blocks of all masks, in the order [batch, heads, q_blocks].
  std::int64_t rows() const { return batch * heads * q_blocks(); }
  std::int64_t words_per_row() const { return (block_kv + 31) / 32; }
  std::int64_t words_per_block() const { return block_q * words_per_row(); }

  friend bool operator==(const BlockMaskShape&, const BlockMaskShape&) = default;
};

/// The blocks that are present, as the lists that a run takes (BlockMaskRef). A present block is
/// full or partial. All pairs of a full one are seen, as far as the problem's window lets them; of
/// a partial one those whose bits are set, or all if it has none.
struct BlockMask : BlockMaskShape {
  std::vector<int> row_begin;       // [rows() + 1]
  std::vector<int> columns;         // of an entry: block column * 2, + 1 where it is partial
  std::vector<std::uint32_t> bits;  // blocks of words_per_block() words; empty: none has bits
  std::vector<int> bit_blocks;      // of an entry, which block of `bits`; -1: none. Empty with bits

  friend bool operator==(const BlockMask&, const BlockMask&) = default;
};

/// The shape of a problem's mask. Throws Error(kInvalidArgument) if it has none.
ATTNFORGE_API BlockMaskShape block_mask_shape(const Problem& problem);

/// Throws Error(kInvalidArgument) for blocks of other sizes than 16, 32, 64 and 128, for lengths
/// above 2^27, for more than 2^20 heads or sequences, none, and for more than 2^30 rows of blocks.
ATTNFORGE_API void validate(const BlockMaskShape& shape);

/// Throws Error(kInvalidArgument) naming the first fault and its position: lists of the wrong
/// length, row_begin that does not ascend, columns of a row that do not ascend, are there twice or
/// are not columns, bits that are not there.
ATTNFORGE_API void validate(const BlockMask& mask);

/// A mask from block-sparse rows (BSR) as other libraries have them: row r has the block columns
/// indices[row_begin[r]] to indices[row_begin[r + 1] - 1], ascending. `partial`, if not empty, says
/// of each whether it is partial, `bits` and `bit_blocks` as in BlockMask. Throws as validate()
/// does.
ATTNFORGE_API BlockMask block_mask_from_bsr(const BlockMaskShape& shape,
                                            std::span<const int> row_begin,
                                            std::span<const int> indices,
                                            std::span<const std::uint8_t> partial = {},
                                            std::span<const std::uint32_t> bits = {},
                                            std::span<const int> bit_blocks = {});

/// Row r has `runs[2 r + 1]` block columns one after another, from `runs[2 r]` on: the schedules of
/// PiKAttention. Throws Error(kInvalidArgument) naming the first run that leaves the mask.
ATTNFORGE_API BlockMask block_mask_from_runs(const BlockMaskShape& shape,
                                             std::span<const int> runs);

/// A mask from [batch, heads, q_blocks, kv_blocks] bytes: a block whose byte is not 0 is present
/// and full.
ATTNFORGE_API BlockMask block_mask_from_blocks(const BlockMaskShape& shape,
                                               std::span<const std::uint8_t> blocks);

/// A mask from [batch, heads, seqlen_q, seqlen_kv] bytes: a pair whose byte is not 0 is seen.
/// Blocks with no pair are not present, those with all are full, others are partial and have bits;
/// equal blocks of bits are stored once.
ATTNFORGE_API BlockMask block_mask_from_dense(const BlockMaskShape& shape,
                                              std::span<const std::uint8_t> seen);

struct RandomBlocks {
  double density = 0.5;    // of each block, to be present
  std::uint64_t seed = 0;  // the same mask on every machine
  bool diagonal = true;    // the blocks on the diagonal are always present, so that under a causal
                           // mask each query sees a key
  double partial = 0;      // of each present block, to be partial, with random bits
};
/// Each head and sequence has its own.
ATTNFORGE_API BlockMask random_block_mask(const BlockMaskShape& shape, const RandomBlocks& random);

/// A query at position i + seqlen_kv - seqlen_q sees the keys in [position - left, position +
/// right]; -1: all on that side.
ATTNFORGE_API BlockMask sliding_window_mask(const BlockMaskShape& shape, std::int64_t left,
                                            std::int64_t right);

/// Whole blocks: those on the diagonal, `local` before them, and each `stride`th column.
ATTNFORGE_API BlockMask strided_mask(const BlockMaskShape& shape, std::int64_t local,
                                     std::int64_t stride);

/// sliding_window_mask(), and all queries see the first `global` keys, and the first `global`
/// queries all keys.
ATTNFORGE_API BlockMask global_window_mask(const BlockMaskShape& shape, std::int64_t global,
                                           std::int64_t left, std::int64_t right);

/// Documents of these lengths one after another: a query sees the keys of its own. Their sum is
/// seqlen_q and seqlen_kv, else Error(kInvalidArgument).
ATTNFORGE_API BlockMask document_mask(const BlockMaskShape& shape,
                                      std::span<const std::int64_t> lengths);

/// The blocks of `mask` by columns: queries and keys change places, and so do rows and columns of
/// bits.
ATTNFORGE_API BlockMask transposed(const BlockMask& mask);

struct BlockCounts {
  std::int64_t blocks = 0;  // of all masks
  std::int64_t full = 0, partial = 0;
  std::int64_t empty() const { return blocks - full - partial; }
  double density() const {
    return blocks == 0 ? 0.0 : static_cast<double>(full + partial) / static_cast<double>(blocks);
  }
};
ATTNFORGE_API BlockCounts count_blocks(const BlockMask& mask);

/// How many blocks are computed, of all masks, where the rows of blocks below block_m queries are
/// taken together: each of them computes what one of them has.
ATTNFORGE_API std::int64_t merged_blocks(const BlockMask& mask, int block_m);

/// Floating point operations of a problem's two products over the pairs that this mask and its
/// window let through. Throws as with_block_mask() does.
ATTNFORGE_API double flops(const Problem& problem, const BlockMask& mask);

/// One head's mask in at most `most` rows and columns of characters: ' ' where no block is present,
/// '#' where all are full, '+' else. Each line ends with a newline.
ATTNFORGE_API std::string to_text(const BlockMask& mask, std::int64_t head = 0,
                                  std::int64_t sequence = 0, int most = 64);

/// The drawing as an SVG picture of size_px: full blocks dark, partial ones light. A cell of a
/// large mask shows the shares of its blocks.
ATTNFORGE_API std::string to_svg(const BlockMask& mask, std::int64_t head = 0,
                                 std::int64_t sequence = 0, int size_px = 512);

/// The problem with the words of this mask: blocks, mask_heads, mask_batch, mask_bits and density.
/// Throws Error(kInvalidArgument) for other seqlens and for heads or a batch that are not the
/// problem's.
ATTNFORGE_API Problem with_block_mask(const Problem& problem, const BlockMask& mask);
/// `problem` with a mask that lies elsewhere. `density` is the share of its blocks that is present,
/// `bits` says whether partial ones have bits.
ATTNFORGE_API Problem with_block_mask(const Problem& problem, const BlockMaskShape& shape,
                                      double density, bool bits);

/// The blocks of a mask's text, for pictures and counts.
struct TextBlocks {
  BlockMask mask{};       // of one head and sequence, without bits
  bool sampled = false;   // some pairs of each block were asked, not all: it may be wrong
  std::string unknown{};  // why there is no mask: what of the text only a compiler knows
};
/// Found on the CPU, which reads expressions of numbers, sizes, positions and arguments, in a
/// fraction of a second however long the sequences: blocks are the problem's, else of 128 x 128,
/// or larger ones where there would be more than 2^16. With the problem's window, but for that of a
/// problem with blocks, which a run adds to them (block_mask_from_text()). `arrays` are the bytes
/// of each of the problem's arguments in their order, empty for numbers and for arrays that are not
/// known. Throws Error(kInvalidArgument) without a mask text, and for a head or a sequence that is
/// not there.
ATTNFORGE_API TextBlocks text_blocks(const Problem& problem,
                                     std::span<const std::span<const std::byte>> arrays = {},
                                     std::int64_t head = 0, std::int64_t sequence = 0);

/// The lists in host memory, borrowed.
ATTNFORGE_API BlockMaskRef block_mask_ref(const BlockMask& mask);

/// Into the host tensors of a problem with such a mask, or out of them. The first throws as
/// with_block_mask() does if the mask's shape is not the problem's, the second as validate().
ATTNFORGE_API void set_block_mask(const Problem& problem, HostTensors& host, const BlockMask& mask);
ATTNFORGE_API BlockMask block_mask_of(const Problem& problem, const HostTensors& host);

/// random_block_mask() of the problem's shape and density, with an eighth of the blocks partial
/// where it has bits: what allocate_host_tensors() and tuning take. Nothing without a block mask.
ATTNFORGE_API void set_random_block_mask(const Problem& problem, HostTensors& host,
                                         std::uint64_t seed);

}  // namespace attnforge
