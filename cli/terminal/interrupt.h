// interrupt.h - Ctrl-C: the first asks to stop and keep what is done, the second ends the program
// at once.
#pragma once

namespace attnforge::cli {

/// While it lives, the first SIGINT (Ctrl-C) or SIGTERM is only noted. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Whether one was noted since the last scope began.
bool interrupted();

}  // namespace attnforge::cli
