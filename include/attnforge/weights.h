// weights.h - the weights that queries gave to keys in a forward run: of some queries, or for each
// key their sum over all.
#pragma once

#include <cstdint>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// The same queries of every sequence.
struct WeightRows {
  // [count] in device memory: queries, from 0; below 0 counted from the sequence's end, so that -1
  // is its last one. Null: the first `count`.
  const int* queries = nullptr;
  std::int64_t count = 0;
};

/// Enqueues on `stream` what a forward run of `problem` multiplied v by: exp(s - lse), s the score
/// after everything that the problem makes of it, 0 where a query does not see a key. `tensors`: q,
/// k and lse, which the run with the problem's lse wrote, and what the problem's parts need; v and
/// o are not read. weights: fp32 [batch, num_heads_q, rows.count, seqlen_kv], stride_row between
/// rows; of packed sequences and pages too, with 0 after a sequence's last key. So are rows of
/// queries that a sequence does not have. Nothing else is stored: memory is that of the output. Of
/// fp32, fp16 or bf16, k of q's dtype; not with a rope, which wants q and k rotated before. The
/// first call for a problem's dtype, head_dim, alignment, lengths and texts compiles a kernel, or
/// takes it from the database; later ones only launch, and may be captured into a CUDA graph.
/// Thread-safe. Throws Error(kUnsupported) with the reason, Error(kInvalidProblem),
/// Error(kInvalidArgument) as Plan::run(), Error(kCompile), Error(kNotReady) if the kernel is not
/// there and `allow_compile` is false, Error(kCuda).
ATTNFORGE_API void attention_weights(const Problem& problem, const Tensors& tensors,
                                     const WeightRows& rows, const Tensor& weights, Device& device,
                                     void* stream = nullptr, bool allow_compile = true);

/// The same summed over all queries: fp32 [batch, num_heads_q, seqlen_kv] in `mass`, added up in
/// the same order in every run. Costs about as much as the first product of a forward run.
ATTNFORGE_API void key_mass(const Problem& problem, const Tensors& tensors, const Rows& mass,
                            Device& device, void* stream = nullptr, bool allow_compile = true);

}  // namespace attnforge
