// device_block_mask.h - block masks in the memory of a GPU: made there of a mask's text or of a
// dense mask, turned over there, copied to and fro.
#pragma once

#include <cstdint>

#include "attnforge/block_mask.h"
#include "attnforge/device.h"
#include "attnforge/device_memory.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// A BlockMask whose lists are on a GPU, ready for any number of runs and any stream there.
/// Move-only; must not outlive its Device, nor runs that read it.
struct DeviceBlockMask : BlockMaskShape {
  DeviceBuffer row_begin, columns;  // as BlockMask has them, one element at least
  DeviceBuffer bits, bit_blocks;    // empty where partial blocks have no bits
  std::int64_t full = 0, partial = 0;
  std::int64_t blocks_of_bits = 0;

  bool has_bits() const { return bits.size_bytes() != 0; }
};

struct DeviceMaskOptions {
  void* stream = nullptr;     // a CUstream: what the mask is made of is ready there
  bool allow_compile = true;  // false: Error(kNotReady) where a kernel would have to be compiled
};

/// What problem.mask lets be seen, in blocks of problem.mask_block_q and mask_block_kv, so that all
/// runs of a mask find it classified. Blocks of which no pair is seen are not present, those of
/// which all are seen are full. Partial ones are left to the text, which the problem of a run keeps
/// (with_block_mask(problem, mask)); with problem.mask_bits they have bits, and runs need no text.
/// Heads and sequences have masks of their own where the text names `head` or `batch`. Causal and
/// windows, which runs apply, are not looked at. Sequences are as long as seqlen_q and seqlen_kv;
/// so with other lengths the text may not name these. `code_arguments` are those of
/// Tensors::code_arguments, null without any, and must keep their values as long as the mask is
/// used. Waits for the stream; 64k x 64k in blocks of 128 take some ms at most, once the text is
/// compiled (about half a second, kept in the database and in the Device).
/// Throws Error(kInvalidProblem), Error(kInvalidArgument) for a problem without a text or blocks
/// and for null arguments, Error(kUnsupported) for more than 2^31 - 1 blocks, Error(kCompile) with
/// line and column of the text, Error(kNotReady), Error(kNoDriver) without NVRTC, Error(kCuda).
ATTNFORGE_API DeviceBlockMask block_mask_from_text(Device& device, const Problem& problem,
                                                   const std::uint64_t* code_arguments = nullptr,
                                                   const DeviceMaskOptions& options = {});

/// A mask from [batch, heads, seqlen_q, seqlen_kv] bytes on the GPU: a pair whose byte is not 0 is
/// seen. Partial blocks have bits of their own. Throws as block_mask_from_text().
ATTNFORGE_API DeviceBlockMask block_mask_from_dense(Device& device, const BlockMaskShape& shape,
                                                    const void* seen,
                                                    const DeviceMaskOptions& options = {});

/// The blocks of `mask` by columns, as transposed() of a BlockMask makes them; in the same order in
/// every run.
ATTNFORGE_API DeviceBlockMask transposed(Device& device, const DeviceBlockMask& mask,
                                         const DeviceMaskOptions& options = {});

/// Copies. The first throws as validate().
ATTNFORGE_API DeviceBlockMask upload_block_mask(Device& device, const BlockMask& mask);
ATTNFORGE_API BlockMask download_block_mask(const DeviceBlockMask& mask);

ATTNFORGE_API BlockCounts count_blocks(const DeviceBlockMask& mask);
/// The lists, borrowed, for Tensors::block_mask.
ATTNFORGE_API BlockMaskRef block_mask_ref(const DeviceBlockMask& mask);
/// `problem` with this mask, as with_block_mask() of a BlockMask makes it.
ATTNFORGE_API Problem with_block_mask(const Problem& problem, const DeviceBlockMask& mask);

}  // namespace attnforge
