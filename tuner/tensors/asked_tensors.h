// asked_tensors.h - the tensors of a problem in the memory of another one's: the sizes that a call
// asked for, in what their bucket was given.
#pragma once

#include <cstdint>
#include <vector>

#include "tuner/tensors/problem_tensors.h"

namespace attnforge {

/// Whether `asked` has other sizes than `bucket`, which has its tensors, none of them smaller. Not
/// of batch_invariant problems: their bucket stands for all batches. Pure.
bool is_smaller(const Problem& asked, const Problem& bucket);

/// To be timed, not compared: inputs are the bucket's random numbers, at other places. Tables are
/// its own.
class AskedTensors {
 public:
  /// `asked` is_smaller() than the problem of `bucket`, which must outlive this. Throws
  /// Error(kCuda) where there is no memory for tables.
  AskedTensors(const Problem& asked, const ProblemTensors& bucket, unsigned seed);

  const Tensors& tensors() const { return tensors_; }

 private:
  HostTensors host_;  // nothing but tables
  std::vector<Buffer> tables_;
  std::vector<std::uint64_t> words_;  // tensors_ points to them
  Tensors tensors_;
};

}  // namespace attnforge
