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

/// What queries made of some of their keys: o, softmax(s) V over these keys, and lse, the natural
/// logarithm of the sum of exp(s). In device memory, borrowed, of any strides.
struct AttentionState {
  Tensor o{};
  Rows lse{};  // -inf: the row has seen no key, and its o is not read
};

/// The most parts of one merge; results of merges can be merged.
inline constexpr int kMostMergedStates = 32;

/// Enqueues on `stream` the attention to the keys of all `parts` (1 to kMostMergedStates), which
/// must not share keys: the mean of their o, weighted by exp(lse). `result.lse` may be null: then
/// it is not written. The result's o and lse may be those of a part, if the dtypes are equal. A row
/// that no part has seen a key of gets o = 0 and lse = -inf. The sums' order depends on the number
/// of parts alone, so that the same input gives the same bits. The first call for these dtypes,
/// this head_dim and alignment compiles a kernel, or takes it from the database; later ones only
/// launch, and may be captured into a CUDA graph. Thread-safe. Throws Error(kInvalidArgument) for
/// sizes, dtypes and addresses that cannot be served (o aligned to its elements, lse to 4 bytes),
/// Error(kNotReady) if the kernel is not there and `allow_compile` is false, Error(kCompile),
/// Error(kCuda).
ATTNFORGE_API void merge_states(const StateSizes& sizes, std::span<const AttentionState> parts,
                                const AttentionState& result, Device& device,
                                void* stream = nullptr, bool allow_compile = true);

}  // namespace attnforge
