// launch.h - a launch as data: what a family asks the driver to do, with no driver types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

struct Dim3 {
  unsigned x = 1, y = 1, z = 1;
};

/// A tensor map (CUtensorMap, 128 bytes) in a kernel's argument: how TMA sees one of the tensors of
/// a run. runtime/tensor_map.h encodes it, with the pointer and the strides of that run.
struct TensorMapSpec {
  enum class Operand { kQ, kK, kV } operand = Operand::kQ;
  DType dtype = DType::kBf16;
  std::size_t offset = 0;  // of the map in LaunchStep::params
  // Dimensions {column, row, head, batch}; with packed_heads > 0 {column, head % packed_heads, row,
  // head / packed_heads, batch}. Elements outside are read as zeros.
  int columns = 0;
  int packed_heads = 0;
  std::int64_t rows = 0;
  std::int64_t heads = 0;
  std::int64_t batch = 0;
  // A copy takes box_columns x (packed heads) x box_rows; shared memory is swizzled by rows of
  // swizzle_bytes: 32, 64 or 128.
  int box_columns = 0;
  int box_rows = 0;
  int swizzle_bytes = 128;
};

/// One kernel launch.
struct LaunchStep {
  std::string kernel;  // extern "C" symbol in the cubin
  Dim3 grid, block;
  Dim3 cluster;                   // {1, 1, 1}: no cluster attribute
  int smem_bytes = 0;             // dynamic
  std::vector<std::byte> params;  // the kernel's one argument with everything filled in that does
                                  // not come from Tensors
  std::vector<TensorMapSpec> tensor_maps;
};

/// The first bytes of every workspace are for counters: zeros before the first run, and left as
/// zeros by every run, so that plans of any families may take turns with one workspace. What comes
/// after them is scratch, which a run writes before it reads.
inline constexpr std::size_t kWorkspaceCounterBytes = 256;

/// All steps of a run, in stream order. No steps: nothing to do (seqlen_q or batch is 0).
struct Launch {
  std::vector<LaunchStep> steps;
  std::size_t workspace_bytes = 0;  // counters, up to kWorkspaceCounterBytes, then scratch
};

/// Largest gridDim.x.
inline constexpr std::int64_t kMaxGridX = 2147483647;

/// Largest params struct that a run copies to its stack. CUDA allows 4096; ours are small.
inline constexpr std::size_t kMaxParamsBytes = 1024;

}  // namespace attnforge
