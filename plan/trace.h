// trace.h - the problems that a process asks plans for, as lines for `attnforge tune --file`
// (ATTNFORGE_TRACE).
#pragma once

#include <string>

#include "attnforge/problem.h"
#include "plan/said_once.h"
#include "runtime/log.h"

namespace attnforge {

/// Thread-safe. Lines of processes that write to one file do not mix, and are there once.
class Trace {
 public:
  /// Of $ATTNFORGE_TRACE, the file; unset: nothing is written.
  Trace();
  /// Adds a problem whose bucket was not asked for before. What cannot be written is a log line.
  void add(const Problem& bucket, const Logger& log);

 private:
  std::string path_;
  SaidOnce written_;
};

}  // namespace attnforge
