#include "plan/trace.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace attnforge {

Trace::Trace() {
  if (const char* path = secure_getenv("ATTNFORGE_TRACE")) path_ = path;
}

namespace {

/// Whether the file has the line already: of another GPU, process or run.
bool has_line(int file, std::string_view line) {
  std::string content("\n");
  char part[4096];
  off_t at = 0;
  for (ssize_t count; (count = pread(file, part, sizeof part, at)) > 0; at += count)
    content.append(part, static_cast<std::size_t>(count));
  return content.find("\n" + std::string(line)) != content.npos;
}

}  // namespace

void Trace::add(const Problem& bucket, const Logger& log) {
  if (path_.empty() || bucket.batch == 0 || bucket.seqlen_q == 0) return;  // nothing to tune
  const std::string line = to_string(bucket) + "\n";
  if (!written_.first(line)) return;
  const int file = open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  if (file >= 0) flock(file, LOCK_EX);  // until it is closed
  const bool written = file >= 0 &&
                       (has_line(file, line) ||
                        write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size()));
  if (!written) {
    log.warning(fmt::format("ATTNFORGE_TRACE={}: \"{}\" is not written: {}", path_,
                            to_string(bucket), std::strerror(errno)));
  }
  if (file >= 0) close(file);
}

}  // namespace attnforge
