// block_mask.h - block masks that commands ask for: from .npy files, or random ones.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/problem.h"

namespace attnforge::cli {

/// The mask of files: one of int32 [rows, 2], a run of block columns for each row (first, count);
/// one of bool [..., rows, columns], which blocks are present, or [..., seqlen_q, seqlen_kv], which
/// pairs are seen; or two or three of one dimension, row_begin, columns, and which are partial.
/// Block sizes and heads are those of the problem's words, or what the files can only mean. Throws
/// Error(kIo) for a file that cannot be read, Error(kInvalidArgument) for one that is not a mask of
/// the problem, with the position of the first fault.
BlockMask mask_from_files(const Problem& problem, const std::vector<std::string>& paths);

/// A random one: blocks and heads of the problem's words; without such words blocks of 128.
BlockMask mask_of_density(const Problem& problem, double density, std::uint64_t seed);

}  // namespace attnforge::cli
