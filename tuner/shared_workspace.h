// shared_workspace.h - the workspace that candidates take turns with: as large as the largest of
// them asks for.
#pragma once

#include <algorithm>
#include <cstddef>

#include "generator/launch.h"
#include "runtime/driver.h"
#include "runtime/memory.h"

namespace attnforge {

/// One for all: a candidate that keeps its scores in memory needs gigabytes, and dozens are loaded
/// at a time. Nothing of a run is in it when another candidate runs, but for counters that a wrong
/// one may have left; clear_counters() puts them back.
class SharedWorkspace {
 public:
  /// May move the memory: candidates look at data() before each run. Throws Error(kCuda).
  void reserve(std::size_t bytes) {
    if (bytes <= buffer_.size_bytes()) return;
    buffer_ = Buffer();  // first: both may not fit
    buffer_ = Buffer(bytes);
    clear_counters(nullptr);
    check(driver().cuStreamSynchronize(nullptr), "clearing the counters of a workspace");
  }

  void clear_counters(CUstream stream) {
    const std::size_t bytes = std::min(buffer_.size_bytes(), kWorkspaceCounterBytes);
    if (bytes == 0) return;
    check(driver().cuMemsetD8Async(buffer_.address(), 0, bytes, stream),
          "clearing the counters of a workspace");
  }

  void* data() const { return buffer_.data(); }

 private:
  Buffer buffer_;
};

}  // namespace attnforge
