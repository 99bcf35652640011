// oracle.h - what a problem's outputs should be on some rows: fwd_naive, or bwd_naive, on the same
// inputs, in fp32, run once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "reference/sequences.h"
#include "tuner/instruments.h"
#include "tuner/own_code.h"

namespace attnforge {

/// The oracle of one problem on inputs that stay as they are.
class Oracle {
 public:
  virtual ~Oracle() = default;

  struct Verdict {
    double max_error = 0;  // of the outputs, lse aside
    std::string mismatch;  // "" if all rows are within tolerance, else where and by how much
  };
  /// Compares some rows of the outputs; `stream` is waited for.
  virtual Verdict compare(const Tensors& tensors, CUstream stream) = 0;
};

/// Runs fwd_naive, or bwd_naive, compiled if `code` does not have it, on rows_to_compare(sequences,
/// device, seed) of `tensors`, whose inputs are standard normal, and of backward's on rows of keys
/// too; waits for it. Outputs that a run adds to hold already what they hold before each run.
/// Borrows `instruments`. Throws Error(kCuda), Error(kCompile), Error(kInternal) if the oracle does
/// not serve the problem.
std::unique_ptr<Oracle> make_oracle(const Sequences& sequences, const DeviceFacts& device,
                                    const Tensors& tensors, unsigned seed,
                                    const Instruments& instruments, const OwnCode& code,
                                    CUstream stream);
/// Of the kernels that it runs, and set_forward_lse().
std::vector<Source> oracle_sources(const Problem& problem, const DeviceFacts& device);
/// That of a backward problem.
std::unique_ptr<Oracle> make_gradient_oracle(const Sequences& sequences, const DeviceFacts& device,
                                             const Tensors& tensors, unsigned seed,
                                             const Instruments& instruments, const OwnCode& code,
                                             CUstream stream);
Source gradient_source(const Problem& problem, const DeviceFacts& device);

}  // namespace attnforge
