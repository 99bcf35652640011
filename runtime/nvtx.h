// nvtx.h - named ranges on a profiler's time line. Off, at the cost of a branch, unless a profiler
// is attached.
#pragma once

#include <string_view>

namespace attnforge {

/// True when a profiler has asked for ranges (it sets NVTX_INJECTION64_PATH before the process
/// starts) and attnforge was built with NVTX's headers. Fixed at load.
extern const bool kNvtxActive;

/// A range from construction to destruction, on the calling thread; ranges nest.
class NvtxRange {
 public:
  /// `detail` is added after a blank, e.g. NvtxRange("attnforge compile", source.name).
  explicit NvtxRange(const char* name, std::string_view detail = {}) {
    if (kNvtxActive) [[unlikely]]
      push(name, detail);
  }
  ~NvtxRange() {
    if (kNvtxActive) [[unlikely]]
      pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  static void push(const char* name, std::string_view detail);
  static void pop();
};

}  // namespace attnforge
