// compile_pool.h - runs slow, independent jobs on several threads while the caller's thread does
// what they lead to.
#pragma once

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <thread>
#include <vector>

#include "attnforge/tune.h"
#include "generator/cubin.h"
#include "generator/source.h"

namespace attnforge {

struct Compiled {
  Source source;
  Cubin cubin;
  Measurement failure;         // status kCompileError if it did not compile
  std::exception_ptr trouble;  // set if the fault is not the candidate's
};

class CompilePool {
 public:
  /// A job, on one of the pool's threads. `unwanted` becomes true when its run has ended.
  using Job = std::function<Compiled(std::size_t index, const std::atomic<bool>& unwanted)>;

  /// `threads` 0: one a core. The end of the pool waits for jobs in flight.
  explicit CompilePool(int threads);
  /// Calls `job(index, unwanted)` for 0 to count - 1 on the pool's threads, about in order, and
  /// `on_done(index, result)` on this thread. `keep_going` is asked here at least every 50 ms; when
  /// it says no, no more jobs start and run() returns without waiting for those in flight. `job` is
  /// copied and must not throw; what it borrows must outlive the pool. What on_done throws ends the
  /// run in the same way.
  void run(std::size_t count, Job job, const std::function<bool()>& keep_going,
           const std::function<void(std::size_t, Compiled&&)>& on_done);

 private:
  struct Shared;
  const int threads_;
  std::vector<std::jthread> workers_;
};

}  // namespace attnforge
