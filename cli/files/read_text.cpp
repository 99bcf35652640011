#include "cli/files/read_text.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <iostream>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

constexpr std::size_t kMost = 64 << 20;

}  // namespace

std::string read_text(const std::string& path, const std::string& what) {
  std::ifstream file;
  if (path != "-") file.open(path, std::ios::binary);
  std::istream& in = path == "-" ? std::cin : file;
  std::error_code ignored;
  // A folder can be opened, but not read.
  if (!in || (path != "-" && std::filesystem::is_directory(path, ignored))) {
    throw Error(
        ErrorCode::kIo,
        fmt::format("cannot read the {} \"{}\"; is it a file, and does it exist?", what, path));
  }
  std::string text;
  char piece[1 << 14];
  while (in.read(piece, sizeof(piece)) || in.gcount() > 0) {
    text.append(piece, static_cast<std::size_t>(in.gcount()));
    if (text.size() > kMost) {
      throw Error(ErrorCode::kIo,
                  fmt::format("the {} \"{}\" is larger than {} MiB; is it the right one?", what,
                              path, kMost >> 20));
    }
  }
  if (in.bad())
    throw Error(ErrorCode::kIo, fmt::format("the {} \"{}\" cannot be read to its end", what, path));
  return text;
}

}  // namespace attnforge::cli
