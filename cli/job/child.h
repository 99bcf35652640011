// child.h - this program again, as a process of its own whose end is asked for, not waited for.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace attnforge::cli {

/// Ends with its parent: gets SIGTERM where that dies, so that it stops and keeps what it has. Not
/// bound to the cores that its parent is bound to: a launcher gives each rank one, and compilers
/// want more.
class Child {
 public:
  /// Throws Error(kIo) where it cannot be started.
  explicit Child(const std::vector<std::string>& arguments);
  /// Kills it, if it has not ended.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// Its exit code, 128 and the number of the signal that ended it; nothing while it runs.
  std::optional<int> ended();
  void interrupt();
  /// What it wrote to standard output so far. Standard error is this process's.
  std::string output();

 private:
  int output_ = -1;  // a file without a name
  pid_t process_ = -1;
};

}  // namespace attnforge::cli
