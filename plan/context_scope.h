// context_scope.h - makes one CUDA context current on this thread, and leaves the thread as it was.
#pragma once

#include "runtime/driver.h"

namespace attnforge {

/// Costs one cheap driver call when `context` is current already.
class ContextScope {
 public:
  /// Throws Error(kCuda).
  explicit ContextScope(CUcontext context) {
    CUcontext current = nullptr;
    const Driver& cuda = driver();
    check(cuda.cuCtxGetCurrent(&current), "ask for the current CUDA context");
    if (current == context) return;
    check(cuda.cuCtxPushCurrent(context), "make a plan's CUDA context current");
    pushed_ = true;
  }
  ~ContextScope() {
    CUcontext popped = nullptr;
    if (pushed_) driver().cuCtxPopCurrent(&popped);
  }
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  bool pushed_ = false;
};

}  // namespace attnforge
