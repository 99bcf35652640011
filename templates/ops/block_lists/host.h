// host.h - kernels that make the lists of block masks on the GPU, apart from any attention:
// their sources and launches. Of a mask's text, and of lists by rows, lists by columns.
#pragma once

#include <cstdint>

#include "attnforge/block_mask.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/source.h"

namespace attnforge {

/// Where lists, and what leads to them, lie on the GPU.
struct BlockListMemory {
  std::uint8_t* states = nullptr;  // [rows, kv_blocks]
  int* row_begin = nullptr;        // [rows + 1]
  int* partial_begin = nullptr;    // [rows + 1]
  int* columns = nullptr;
  int* bit_blocks = nullptr;  // null: no bits
  std::uint32_t* bits = nullptr;
};

/// A problem that has nothing but the mask's text, its arguments and sizes.
Problem mask_text_alone(const Problem& problem);

/// Kernels that write states, and bits, for a problem with nothing but a text. They take arguments
/// as those of attention do (code_argument()).
Source block_text_source(const Problem& text, const BlockMaskShape& shape);
LaunchStep block_states_step(const Problem& text, const BlockMaskShape& shape,
                             const BlockListMemory& memory);
/// The step that writes the bits of lists with this many entries, whose bit_blocks are there.
LaunchStep block_bits_step(const Problem& text, const BlockMaskShape& shape,
                           const BlockListMemory& memory, std::int64_t entries);

/// The kernels that follow.
Source block_lists_source();
/// States become row_begin and partial_begin, in two steps; these, columns and bit_blocks.
LaunchStep count_blocks_step(const BlockMaskShape& shape, const BlockListMemory& memory);
LaunchStep begin_rows_step(const BlockMaskShape& shape, const BlockListMemory& memory);
LaunchStep write_rows_step(const BlockMaskShape& shape, const BlockListMemory& memory);
/// Lists `from` of a `shape` become the states of `to`, whose queries are the keys of `from`; these
/// are zeros before. And once `to` has lists, from's bit_blocks and bits become those of `to`.
LaunchStep mark_columns_step(const BlockMaskShape& shape, const BlockListMemory& from,
                             const BlockListMemory& to);
LaunchStep find_bits_step(const BlockMaskShape& shape, const BlockListMemory& from,
                          const BlockListMemory& to);
LaunchStep transpose_bits_step(const BlockMaskShape& shape, const BlockListMemory& from,
                               const BlockListMemory& to, std::int64_t blocks_of_bits);

}  // namespace attnforge
