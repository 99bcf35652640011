// pages.h - keys of sequences that lie in pages, in host memory.
#pragma once

#include <cstdint>

#include "attnforge/host_tensors.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/sequences.h"

namespace attnforge {

/// That of tensors in host memory; nothing without pages.
PageTable page_table_of(const Problem& problem, const HostTensors& host);

/// Throws Error(kInvalidArgument), naming the sequence, unless every key that it has lies in a page
/// of the pool. The lengths are checked already.
void check_page_table(const Sequences& sequences);

/// Sets k and v of `one`, which is sequence `index` and has its own sizes already, to copies of its
/// rows without gaps, [seqlen_kv, num_heads_kv, head_dim].
void gather_pages(const Problem& problem, const Tensors& tensors, std::int64_t index,
                  Sequence& one);

}  // namespace attnforge
