// gradient_oracle.h - the oracle of backward problems: bwd_naive on rows of dq, and of dk and dv.
#pragma once

#include <memory>

#include "tuner/oracle.h"

namespace attnforge {

/// make_oracle() of a backward problem.
std::unique_ptr<Oracle> make_gradient_oracle(const Sequences& sequences, const DeviceFacts& device,
                                             const Tensors& tensors, unsigned seed,
                                             const Instruments& instruments, CUstream stream);

}  // namespace attnforge
