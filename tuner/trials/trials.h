// trials.h - the half of an Evaluator that needs a GPU: candidates whose code is there are loaded,
// proved and timed, on the GPU of this process or by a worker.
#pragma once

#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "generator/candidates.h"
#include "tuner/compile_pool.h"
#include "tuner/evaluate.h"
#include "tuner/own_code.h"

namespace attnforge {

/// Of one problem on one GPU. prove() and what follows is as of an Evaluator. Not thread-safe.
class Trials {
 public:
  virtual ~Trials() = default;

  /// Begins with what needs none of the tuner's own kernels; true once that is done. Returns at
  /// once. Asked often, as what follows, while the first kernels compile.
  virtual bool start() = 0;
  /// Begins, or goes on with, what the first proof needs: tensors and an oracle, by kernels of
  /// `code`; those that it lacks are compiled. True once they are there. Throws Error(kCuda) where
  /// memory is short.
  virtual bool get_ready(const OwnCode& code) = 0;
  /// Borrows both until release(). `rough_us`: what prove() said before; 0: nothing yet. Gives kOk
  /// or kLaunchError.
  virtual Measurement load(const Candidate& candidate, const Compiled& compiled,
                           double rough_us) = 0;

  virtual Measurement prove(const Config& config) = 0;
  virtual std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) = 0;
  virtual void heat(std::span<const Config> configs) = 0;
  virtual double clock_mhz() = 0;
  virtual void release(const Config& config) = 0;
  virtual const Loss* lost() const = 0;
};

inline constexpr std::size_t kDetailBytes = 4096;

inline Measurement failed(Status status, const std::string& detail) {
  Measurement result;
  result.status = status;
  result.detail = detail.substr(0, kDetailBytes);
  return result;
}

/// How long a kernel may run, by the fastest one's time and what is known of its own; in a worker,
/// which can be ended, the least is less.
inline double hang_limit_s(double least_s, double best_us, double rough_us, double estimate_us) {
  constexpr double kHangBest = 50, kHangEstimate = 20;
  const double us = std::max(kHangBest * std::max(best_us, rough_us), kHangEstimate * estimate_us);
  return std::max(least_s, 1e-6 * us);
}

}  // namespace attnforge
