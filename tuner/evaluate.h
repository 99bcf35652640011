// evaluate.h - the Evaluator: compile, prove and time candidates. The search sees only this interface.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attnforge/tune.h"
#include "generator/candidates.h"

namespace attnforge {

/// One problem on one GPU. Implementations: the GPU of this process (in_process_evaluator.h), a fake for tests; a worker
/// process later. Not thread-safe; a failing candidate is a status, never an exception.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  /// Compiles and loads `candidates`, in parallel where it can. on_done(index) is called on the caller's thread as each one
  /// finishes, in any order; returning false stops the rest. The results are kept until release().
  virtual std::vector<Status> prepare(std::span<const Candidate> candidates, const std::function<bool(std::size_t)>& on_done) = 0;

  /// Runs a prepared candidate on poisoned outputs with canaries and compares with the oracle. Sets status, max_error, detail.
  virtual Measurement prove(const Config& config) = 0;

  /// One sample each of proved candidates, cold L2, in the given order, in microseconds; NaN where a launch failed.
  virtual std::vector<double> sample_us(std::span<const Config> order) = 0;

  /// Brings the GPU to its steady clock; called before a series of samples.
  virtual void heat() = 0;

  virtual double clock_mhz() = 0;                       // 0: unknown
  virtual std::string digest_of(const Config& config) = 0;
  virtual void release(const Config& config) = 0;       // unloads it
};

}  // namespace attnforge
