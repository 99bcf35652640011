// launch.h - a launch as data: what a family asks the driver to do, with no driver types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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
  // Where in params the address of a set of counters goes, for kernels that need one.
  std::optional<std::size_t> counters;
};

/// A set of counters: 32-bit words in device memory, aligned to kCounterBytes. All but the word
/// kRunsCounter are zeros when a kernel starts and when it has ended. To that one a kernel adds 1
/// when it is done with the others: kernels that ended, modulo 2^32. Two kernels with the same set
/// must not run at the same time. runtime/counter_pool.h has them for the streams of a GPU.
inline constexpr std::size_t kCounterBytes = 32;
inline constexpr std::size_t kRunsCounter = 2;

/// All steps of a run, in stream order. No steps: nothing to do (seqlen_q or batch is 0).
struct Launch {
  std::vector<LaunchStep> steps;
  std::size_t workspace_bytes = 0;  // scratch: a run writes it before it reads it
};

/// How many steps need counters.
inline int counted_steps(const Launch& launch) {
  int count = 0;
  for (const LaunchStep& step : launch.steps) count += step.counters.has_value() ? 1 : 0;
  return count;
}

/// Device memory of a run beside its tensors: Launch::workspace_bytes of the caller's, and a set of
/// counters. Null where a launch needs none.
struct RunMemory {
  void* workspace = nullptr;
  void* counters = nullptr;

  friend bool operator==(const RunMemory&, const RunMemory&) = default;
};

/// Largest gridDim.x.
inline constexpr std::int64_t kMaxGridX = 2147483647;

/// Largest params struct that a run copies to its stack. CUDA allows 4096; ours are small.
inline constexpr std::size_t kMaxParamsBytes = 1024;

}  // namespace attnforge
