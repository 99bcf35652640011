// evaluate.h - the Evaluator: compile, prove and time candidates. The search sees only this
// interface.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "attnforge/tune.h"
#include "generator/candidates.h"

namespace attnforge {

/// Of which sizes a sample is: those of the bucket's problem, for which all is stored and proved,
/// or those that the call asked for, which have the same kernels. The second only where an
/// evaluator was told of such a problem.
enum class Sizes { kBucket, kAsked };

/// Why an Evaluator cannot go on.
struct Loss {
  std::string config;       // text of the culprit; "" when several may be it
  Measurement measurement;  // its status and detail
  std::string advice;       // what happened and what to do, for people
};

/// One problem on one GPU, of this process or of a worker (evaluator.h). Not thread-safe. What a
/// candidate does wrong is a status, never an exception; what breaks the machine for all (no
/// memory, no compiler) is an Error.
class Evaluator {
 public:
  virtual ~Evaluator() = default;

  /// Digest of the kernel that `candidate` becomes (digest(Source)). Cheap: no compile.
  virtual std::string digest_of(const Candidate& candidate) = 0;

  /// Compiles and loads candidates, in parallel where it can; those that succeed stay loaded until
  /// release(). `on_done(index, measurement)` is called on the caller's thread as each one
  /// finishes, in any order, with status kOk, kCompileError or kLaunchError and a detail. It may
  /// prove(), sample and release() candidates that are done. `keep_going` is asked on the caller's
  /// thread at least every 100 ms. When it says no, nothing more is started and the call returns at
  /// once; candidates whose on_done was not called are then not prepared.
  virtual void prepare(
      std::span<const Candidate> candidates, const std::function<bool()>& keep_going,
      const std::function<void(std::size_t index, const Measurement& measurement)>& on_done) = 0;

  /// Runs a prepared candidate on poisoned outputs with canaries and compares with the oracle, and
  /// its bits with those of another run. Sets status, max_error and detail of the result.
  virtual Measurement prove(const Config& config) = 0;

  /// One sample each of proved candidates, cold L2, in the given order, in microseconds; NaN where
  /// a launch failed. Callers keep an order to about 100 ms of work, since nothing is asked
  /// meanwhile.
  virtual std::vector<double> sample_us(std::span<const Config> order, Sizes sizes) = 0;

  /// Brings the GPU to its steady clock by running proved candidates back to back for about 0.1 s;
  /// called before a series of samples, because the first run after a pause meets a boosted clock.
  virtual void heat(std::span<const Config> configs) = 0;

  /// SM clock during the last sample_us() or heat(); 0: unknown.
  virtual double clock_mhz() = 0;

  /// Puts the code of a prepared candidate into the database, where plans look for it.
  virtual void keep(const Config& config) = 0;

  /// Unloads a candidate. Unknown ones are ignored.
  virtual void release(const Config& config) = 0;

  /// Not null: a candidate hung or broke the CUDA context of this process, or no worker can go on;
  /// what the last call returned and any further call mean nothing.
  virtual const Loss* lost() const = 0;
};

}  // namespace attnforge
