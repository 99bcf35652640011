#include "cli/files/write_text.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
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
  // A link or a device is written to; only a file of its own can be replaced.
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(path, ignored).type();
  const bool replaced = kind == std::filesystem::file_type::not_found ||
                        kind == std::filesystem::file_type::regular;
  const std::string part = replaced ? fmt::format("{}.{}.part", path, getpid()) : path;
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  if (!file) fail();
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file && (!replaced || std::rename(part.c_str(), path.c_str()) == 0)) return;
  const int reason = errno;
  if (replaced) std::remove(part.c_str());
  errno = reason;
  fail();
}

}  // namespace attnforge::cli
