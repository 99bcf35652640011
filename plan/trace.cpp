#include "plan/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace attnforge {

Trace::Trace() {
  if (const char* path = secure_getenv("ATTNFORGE_TRACE")) path_ = path;
}

void Trace::add(const Problem& bucket, const Logger& log) {
  if (path_.empty()) return;
  const std::string line = to_string(bucket) + "\n";
  if (!written_.first(line)) return;
  const int file = open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const bool written = file >= 0 &&
                       write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  if (!written) {
    log.warning(fmt::format("ATTNFORGE_TRACE={}: \"{}\" is not written: {}", path_,
                            to_string(bucket), std::strerror(errno)));
  }
  if (file >= 0) close(file);
}

}  // namespace attnforge
