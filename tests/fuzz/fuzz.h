// fuzz.h - what a fuzz target defines, and what it checks with. A target is one file; main.cpp
// makes an ordinary program of it, libfuzzer.cpp one for clang's libFuzzer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/error.h"

namespace attnforge::fuzz {

// ---- defined by each target ----

/// Works on one input of any bytes: 1 if it was accepted, 0 if it was refused in words. A promise
/// that does not hold ends the process by broken().
int fuzz_one(const std::uint8_t* data, std::size_t size);
/// Inputs that mutation starts from, most of them valid.
std::vector<std::string> corpus();
/// Words that mutation puts into inputs.
std::vector<std::string> words();

// ---- for targets ----

/// Prints what was promised and did not hold, and aborts.
[[noreturn]] void broken(const std::string& what);
inline void require(bool holds, const std::string& what) {
  if (!holds) broken(what);
}

/// A text for people: not empty, below 16 KiB, and printable_lines() of itself.
void require_readable(std::string_view text);

/// Runs `work`: true if it returned, false if it threw an Error with a readable text that blames
/// somebody else than attnforge. Everything else breaks the promise.
template <class Work>
bool accepts(Work&& work) {
  try {
    work();
    return true;
  } catch (const Error& error) {
    require_readable(error.what());
    require(error.code() != ErrorCode::kInternal, error.what());
    return false;
  } catch (const std::exception& error) {
    broken(std::string("an exception that is not attnforge's: ") + error.what());
  }
}

inline std::string text_of(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

/// Decisions taken from an input: bytes from its front, zeros after its end.
class Bytes {
 public:
  Bytes(const std::uint8_t* data, std::size_t size) : data_(data), size_(size) {}

  bool empty() const { return size_ == 0; }
  std::uint8_t byte();
  std::uint64_t bits(int bytes);
  bool flag() { return (byte() & 1) != 0; }
  /// True once in n times.
  bool one_in(int n) { return between(0, n - 1) == n - 1; }
  /// From `least` to `most`, both included.
  std::int64_t between(std::int64_t least, std::int64_t most);
  /// From 0 to 2^bits, each number of bits as likely as any other.
  std::int64_t size(int bits);
  /// A number that tends to break things, or any.
  std::int64_t odd_number();
  std::string text(std::size_t most_bytes);
  template <class Value>
  const Value& among(const std::vector<Value>& values) {
    return values[static_cast<std::size_t>(
        between(0, static_cast<std::int64_t>(values.size()) - 1))];
  }

 private:
  const std::uint8_t* data_;
  std::size_t size_;
};

/// `count` inputs of random bytes, always the same: the corpus of a target that takes decisions.
std::vector<std::string> random_inputs(int count, std::size_t bytes);

/// A new folder in memory if there is such a place, removed with its contents.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  std::string path(const std::string& name) const { return path_ + "/" + name; }
  /// Removes all files.
  void empty() const;

 private:
  std::string path_;
};

}  // namespace attnforge::fuzz
