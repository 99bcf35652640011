// merge_states.h - one attention out of several to parts of the keys: cascades, ring attention,
// shared prefixes.
#pragma once

#include <cstdint>
#include <span>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// The rows that are merged: o is [batch, seqlen, num_heads, head_dim], lse [batch, num_heads,
/// seqlen].
struct StateSizes {
  DType dtype = DType::kFp32;    // of the parts' o; fp32 loses nothing
  DType dtype_o = DType::kBf16;  // of the result's
  std::int64_t batch = 1;
  std::int64_t seqlen = 1;
  std::int64_t num_heads = 1;
  int head_dim = 128;  // of o: a multiple of 8 up to 512
};

/// Makes a plan for a merge of these sizes and of the alignment that these tensors have, and runs
/// it on `stream`: o and lse of the keys of all `parts` (1 to kMostMergedStates), which must not
/// share keys. `result.lse` may be null: then it is not written. The result's o and lse may be
/// those of a part, if the dtypes are equal. A row that no part has seen a key of gets o = 0 and
/// lse = -inf. The first call for these dtypes, this head_dim, alignment and a like number of parts
/// compiles a kernel, or takes it from the database; later ones only launch, and may be captured
/// into a CUDA graph. Throws as make_plan() and Plan::run(); Error(kNotReady) if the kernel is not
/// there and `allow_compile` is false.
ATTNFORGE_API void merge_states(const StateSizes& sizes, std::span<const AttentionState> parts,
                                const AttentionState& result, Device& device,
                                void* stream = nullptr, bool allow_compile = true);

}  // namespace attnforge
