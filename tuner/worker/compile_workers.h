// compile_workers.h - NVRTC in processes of their own, each with one source at a time: a compile
// that has no end, crashes or eats memory costs its process and nothing else.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "generator/cubin.h"
#include "generator/source.h"
#include "tuner/worker/process.h"

namespace attnforge {

/// Workers that wait for a source; as many as compile() is called at a time. Thread-safe.
class CompileWorkers {
 public:
  explicit CompileWorkers(WorkerProgram program, double limit_s = 30)
      : program_(std::move(program)), limit_s_(limit_s) {}

  /// As compile(). A compile that takes `limit_s`, or ten times the longest so far, is ended, and
  /// one that is `unwanted` at once; that, and a worker that crashed, is an Error(kCompile).
  Cubin compile(const Source& source, const Arch& arch, const std::atomic<bool>& unwanted);

 private:
  std::unique_ptr<WorkerProcess> take();

  const WorkerProgram program_;
  const double limit_s_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<WorkerProcess>> idle_;  // guarded
  double longest_s_ = 0;                              // guarded
};

}  // namespace attnforge
