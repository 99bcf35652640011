// lanes.h - which search of one process has which problem, where several run at a time.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <optional>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge::cli {

/// Hands problems out in their order, but none while another lane has its bucket in work: it would
/// wait for that one's winner. Thread-safe.
class Lanes {
 public:
  Lanes(const std::vector<Problem>& problems, std::size_t lanes);

  /// The next one for a lane that is done with its last; waits while others have the buckets of all
  /// that is left. Nothing where nothing is left.
  std::optional<std::size_t> next(std::size_t lane);
  /// The lane has nothing in work, and asks no more.
  void leave(std::size_t lane);

 private:
  std::vector<Problem> buckets_;  // of all problems
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::size_t> left_;                // guarded
  std::vector<std::optional<Problem>> in_work_;  // buckets, by lane; guarded
};

}  // namespace attnforge::cli
