// oracle.h - what a problem's outputs should be on some rows: fwd_naive on the same inputs, in
// fp32, run once.
#pragma once

#include <string>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "reference/attention.h"
#include "runtime/memory.h"
#include "tuner/instruments.h"
#include "tuner/patch.h"

namespace attnforge {

class Oracle {
 public:
  /// Compiles fwd_naive and runs it on patches(problem, device, seed) of `tensors`, whose inputs
  /// are standard normal; waits for it. Borrows `instruments`. Throws Error(kCuda),
  /// Error(kCompile), Error(kInternal) if fwd_naive does not serve the problem.
  Oracle(const Problem& problem, const DeviceFacts& device, const Tensors& tensors, unsigned seed,
         const Instruments& instruments, CUstream stream);

  struct Verdict {
    double max_error = 0;  // of o
    std::string mismatch;  // "" if all rows are within tolerance, else where and by how much
  };
  /// Compares the same rows of tensors.o and tensors.lse; `stream` is waited for.
  Verdict compare(const Tensors& tensors, CUstream stream);

 private:
  struct Expected {
    Patch patch;
    Problem problem;  // of the patch, with the output's dtype
    Reference reference;
    std::size_t o_begin = 0, lse_begin = 0;  // elements of the gathered outputs
  };
  Problem problem_;
  const Instruments& instruments_;
  std::vector<Expected> expected_;
  std::size_t o_elements_ = 0, lse_elements_ = 0;
  Buffer gathered_o_, gathered_lse_;
};

}  // namespace attnforge
