// oracle.h - what a problem's outputs should be on some rows: fwd_naive on the same inputs, in
// fp32, run once.
#pragma once

#include <cstdint>
#include <string>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "reference/attention.h"
#include "reference/sequences.h"
#include "runtime/memory.h"
#include "tuner/instruments.h"

namespace attnforge {

class Oracle {
 public:
  /// Compiles fwd_naive and runs it on rows_to_compare(sequences, device, seed) of `tensors`,
  /// whose inputs are standard normal; waits for it. Borrows
  /// `instruments`. Throws Error(kCuda), Error(kCompile), Error(kInternal) if fwd_naive does not
  /// serve the problem.
  Oracle(const Sequences& sequences, const DeviceFacts& device, const Tensors& tensors,
         unsigned seed, const Instruments& instruments, CUstream stream);

  struct Verdict {
    double max_error = 0;  // of o
    std::string mismatch;  // "" if all rows are within tolerance, else where and by how much
  };
  /// Compares the same rows of tensors.o and tensors.lse; `stream` is waited for.
  Verdict compare(const Tensors& tensors, CUstream stream);

 private:
  Problem problem_;
  const Instruments& instruments_;
  int num_rows_ = 0;  // of the list
  Buffer list_;       // of ListedRow
  Buffer places_;     // the same rows as they lie in o and lse
  Buffer gathered_o_,
      gathered_lse_;    // [num_heads_q][num_rows][head_dim_v], [num_heads_q][num_rows]
  Reference expected_;  // its rows in the same order
};

}  // namespace attnforge
