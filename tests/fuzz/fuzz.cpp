// fuzz.cpp - what targets share.
#include "tests/fuzz/fuzz.h"

#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <random>
#include <stdexcept>

#include "attnforge/printable.h"

namespace attnforge::fuzz {

namespace fs = std::filesystem;

void broken(const std::string& what) {
  std::fprintf(stderr, "\npromise broken: %s\n", printable_lines(what).substr(0, 8000).c_str());
  std::abort();
}

void require_readable(std::string_view text) {
  require(!text.empty(), "an error without a text");
  require(text.size() < 16384, "an error's text of " + std::to_string(text.size()) + " bytes");
  require(printable_lines(text) == text,
          "an error's text that a terminal would obey: " + std::string(text));
}

std::uint8_t Bytes::byte() {
  if (size_ == 0) return 0;
  --size_;
  return *data_++;
}

std::uint64_t Bytes::bits(int bytes) {
  std::uint64_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | byte();
  return value;
}

std::int64_t Bytes::between(std::int64_t least, std::int64_t most) {
  const std::uint64_t count = static_cast<std::uint64_t>(most) - static_cast<std::uint64_t>(least) +
                              1;
  const int bytes = count - 1 < 256 ? 1 : count - 1 < 65536 ? 2 : 8;
  const std::uint64_t value = bits(bytes);
  return least + static_cast<std::int64_t>(count == 0 ? value : value % count);
}

std::int64_t Bytes::size(int bits) {
  const auto used = static_cast<int>(between(0, bits));
  return between(0, std::int64_t{1} << used);
}

std::int64_t Bytes::odd_number() {
  using Limits64 = std::numeric_limits<std::int64_t>;
  using Limits32 = std::numeric_limits<std::int32_t>;
  static const std::vector<std::int64_t> kOdd = {0,
                                                 1,
                                                 -1,
                                                 2,
                                                 3,
                                                 7,
                                                 8,
                                                 16,
                                                 31,
                                                 32,
                                                 33,
                                                 63,
                                                 64,
                                                 127,
                                                 128,
                                                 255,
                                                 256,
                                                 512,
                                                 1024,
                                                 65535,
                                                 65536,
                                                 Limits32::max(),
                                                 Limits32::min(),
                                                 std::int64_t{1} << 32,
                                                 (std::int64_t{1} << 32) - 1,
                                                 std::int64_t{1} << 40,
                                                 std::int64_t{1} << 62,
                                                 Limits64::max(),
                                                 Limits64::min()};
  switch (byte() % 4) {
    case 0:
      return static_cast<std::int8_t>(byte());
    case 1:
      return static_cast<std::int64_t>(bits(8));
    default:
      return among(kOdd);
  }
}

std::string Bytes::text(std::size_t most_bytes) {
  const auto length = std::min(static_cast<std::size_t>(between(0, 255)), most_bytes);
  std::string text;
  while (text.size() < length && size_ > 0) text += static_cast<char>(byte());
  return text;
}

std::vector<std::string> random_inputs(int count, std::size_t bytes) {
  std::mt19937 random(1);
  std::vector<std::string> inputs(static_cast<std::size_t>(count));
  for (std::string& input : inputs) {
    for (std::size_t i = 0; i < bytes; ++i) input += static_cast<char>(random());
  }
  return inputs;
}

ScratchFolder::ScratchFolder() {
  umask(077);  // nobody uses a database that others can write
  const char* memory = "/dev/shm";
  const fs::path parent = access(memory, W_OK) == 0 ? fs::path(memory) : fs::temp_directory_path();
  path_ = (parent / "attnforge_fuzz_XXXXXX").string();
  if (mkdtemp(path_.data()) == nullptr) throw std::runtime_error("mkdtemp failed for " + path_);
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

void ScratchFolder::empty() const {
  for (const auto& entry : fs::directory_iterator(path_)) fs::remove_all(entry.path());
}

}  // namespace attnforge::fuzz
