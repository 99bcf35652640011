// append_oracle.h - the oracle of appends: the same on the CPU, on copies of all tensors.
#pragma once

#include <memory>
#include <vector>

#include "attnforge/host_tensors.h"
#include "reference/compare/outputs.h"
#include "tuner/oracle.h"

namespace attnforge {

/// Each output of an append beside that of reference_append(): equal where nothing was rotated,
/// else within roundings.
std::vector<Comparison> compare_append(const Problem& problem, const HostTensors& got,
                                       const HostTensors& expected);

/// make_oracle() of an append, whose tensors have no gaps.
std::unique_ptr<Oracle> make_append_oracle(const Problem& problem, const Tensors& tensors,
                                           CUstream stream);

}  // namespace attnforge
