// merge.h - several attentions made one on the CPU, in fp64.
#pragma once

#include <span>

#include "reference/attention.h"

namespace attnforge {

/// reference_attention() of a merge: from tensors.parts, in host memory.
Reference reference_merge(const Problem& problem, const Tensors& tensors,
                          std::span<const QueryRow> rows);

}  // namespace attnforge
