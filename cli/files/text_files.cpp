#include "cli/files/text_files.h"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "attnforge/printable.h"
#include "cli/refuse.h"

namespace attnforge::cli {

std::string read_text(const std::string& path, const std::string& what) {
  constexpr std::size_t kMost = 64 << 20;
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? std::cin : file;
  std::error_code ignored;
  // A folder can be opened, but not read.
  if (!in || (path != "-" && std::filesystem::is_directory(path, ignored)))
    refuse(kIo, "cannot read the {} \"{}\"; is it a file, and does it exist?", what, path);
  std::string text;
  char piece[1 << 14];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMost)
      refuse(kIo, "the {} \"{}\" is larger than {} MiB; is it the right one?", what, path,
             kMost >> 20);
  }
  if (in.bad()) refuse(kIo, "the {} \"{}\" cannot be read to its end", what, path);
  return text;
}

void write_text(const std::string& path, std::string_view text) {
  if (path == "-") {
    std::fwrite(text.data(), 1, text.size(), stdout);
    return;
  }
  errno = 0;
  // A link or a device is written to; only a file of its own can be replaced.
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(path, ignored).type();
  const bool replaced = kind == std::filesystem::file_type::not_found ||
                        kind == std::filesystem::file_type::regular;
  const std::string part = replaced ? fmt::format("{}.{}.part", path, getpid()) : path;
  std::ofstream file(part, std::ios::binary | std::ios::trunc);
  if (!file) refuse_file(path, "written");
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  if (file && (!replaced || std::rename(part.c_str(), path.c_str()) == 0)) return;
  const int reason = errno;
  if (replaced) std::remove(part.c_str());
  errno = reason;
  refuse_file(path, "written");
}

void append_text(const std::string& path, std::string_view text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary | std::ios::app);
  file << text;
  file.close();
  if (!file) refuse_file(path, "written");
}

std::string errno_text(const char* unknown) { return errno != 0 ? std::strerror(errno) : unknown; }

void refuse_file(std::string_view path, std::string_view done) {
  const std::string reason = errno_text();
  refuse(kIo, "{} cannot be {}: {}", printable(path), done, reason);
}

}  // namespace attnforge::cli
