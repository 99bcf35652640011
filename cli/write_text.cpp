#include "cli/write_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "attnforge/error.h"
#include "attnforge/printable.h"

namespace attnforge::cli {

void write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  const auto fail = [&] {
    const int reason = errno;
    throw Error(ErrorCode::kIo,
                fmt::format("{} cannot be written: {}", printable(path),
                            reason != 0 ? std::strerror(reason) : "unknown reason"));
  };
  errno = 0;
  const std::string part = fmt::format("{}.{}.part", path, getpid());
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  if (!file) fail();
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file && std::rename(part.c_str(), path.c_str()) == 0) return;
  const int reason = errno;
  std::remove(part.c_str());
  errno = reason;
  fail();
}

}  // namespace attnforge::cli
