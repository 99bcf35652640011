// mask_files.h - block masks of commands: from .npy files, or random ones.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/problem.h"
#include "cli/code_options.h"
#include "cli/command_line.h"

namespace attnforge::cli {

/// What --bsr and --mask-random hold.
struct MaskArguments {
  std::string bsr;     // "": not given
  double random = -1;  // -1: not given
};

void add_mask_options(Command& verb, MaskArguments& arguments);

/// The mask that is asked for, or none. Block sizes and heads are those of the problem's words, or
/// what the files can only mean; a random mask without words has blocks of 128. Throws Error(kIo)
/// for a file that cannot be read, Error(kInvalidArgument) for one that is not a mask of the
/// problem, with the position of the first fault.
std::optional<BlockMask> mask_of(const MaskArguments& arguments, const Problem& problem,
                                 std::uint64_t seed);

/// The mask of files: one of int32 [rows, 2], a run of block columns for each row (first, count);
/// one of bool [..., rows, columns], which blocks are present, or [..., seqlen_q, seqlen_kv], which
/// pairs are seen; or two or three of one dimension, row_begin, columns, and which are partial.
BlockMask mask_from_files(const Problem& problem, const std::vector<std::string>& paths);

/// The blocks of the problem's mask text, with the arrays that --arg has files for.
TextBlocks text_blocks_of(const Problem& problem, const CodeOptions& code);

/// What is drawn: a block mask, or the blocks of a text.
struct ShownMask {
  BlockMask blocks{};
  bool sampled = false;  // TextBlocks::sampled
};

/// "12.5% of 4096 blocks of 64 x 64 are present: 400 full, 112 partial, 3584 empty".
std::string mask_text(const ShownMask& mask);

/// How many blocks are computed for each that is present where rows of blocks are merged into tiles
/// of block_m queries: "merged to tiles of 128 queries: 1.31 blocks for each of them"; "" where
/// none is.
std::string merge_text(const BlockMask& mask, int block_m);

/// A drawing for terminals, each line between bars.
std::string framed_drawing(const BlockMask& mask);

}  // namespace attnforge::cli
