// said_once.h - texts that are worth saying once.
#pragma once

#include <mutex>
#include <set>
#include <string>

namespace attnforge {

/// Thread-safe. Keeps every text: for as many as there are
/// buckets or kernels, not as there are runs.
class SaidOnce {
 public:
  /// Whether `text` is new.
  bool first(const std::string& text) {
    const std::lock_guard lock(mutex_);
    return said_.insert(text).second;
  }

 private:
  std::mutex mutex_;
  std::set<std::string> said_;
};

}  // namespace attnforge
