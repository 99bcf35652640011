// host.h - the kernel behind attnforge::merge_states() as a source and a launch.
#pragma once

#include <cstdint>

#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/source.h"
#include "templates/ops/merge_states/params.h"

namespace attnforge {

/// What its code depends on. Rows of o begin at multiples of `alignment` bytes: 2, 4, 8 or 16.
struct MergeCode {
  DType dtype = DType::kFp32;    // of the parts
  DType dtype_o = DType::kBf16;  // of the result
  int head_dim = 0;              // a multiple of 8 up to 512
  int alignment = 16;

  friend bool operator==(const MergeCode&, const MergeCode&) = default;
};

Source merge_source(const MergeCode& code);

/// Without a grid, and with an argument that each run brings.
LaunchStep merge_step(const MergeCode& code);
/// Blocks for so many rows, of which at most kMaxGridX are allowed.
unsigned merge_blocks(std::int64_t rows, int parts);

}  // namespace attnforge
