// shared_workspace.h - the memory that candidates take turns with: a workspace as large as the
// largest of them needs, and counters.
#pragma once

#include "generator/launch.h"
#include "runtime/memory.h"

namespace attnforge {

/// One for all: a candidate that keeps its scores in memory needs gigabytes, and dozens are loaded
/// at a time. All run on one stream. Nothing of a run is in it when another candidate runs, but for
/// counters that a wrong one may have left; clear_counters() puts them back.
class SharedWorkspace {
 public:
  /// May move the memory: each run takes it from memory(). Throws Error(kCuda).
  void reserve(const Launch& launch) {
    if (counted_steps(launch) > 0 && counters_.size_bytes() == 0) counters_ = Buffer(kCounterBytes);
    if (launch.workspace_bytes <= workspace_.size_bytes()) return;
    workspace_ = Buffer();  // first: both may not fit
    workspace_ = Buffer(launch.workspace_bytes);
  }

  /// Enqueued on `stream`; before the first run at the latest.
  void clear_counters(CUstream stream) { counters_.fill8(0, stream); }

  RunMemory memory() const {
    return {.workspace = workspace_.data(), .counters = counters_.data()};
  }

 private:
  Buffer workspace_, counters_;
};

}  // namespace attnforge
