// options.h - what the torture programs share: their two options, a clock, a line of progress.
#pragma once

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

namespace attnforge::torture {

struct Options {
  double seconds = 2;
  std::uint64_t seed = 1;
};

/// [--seconds S] [--seed X]; ends the program with 2 and a text for anything else.
inline Options read_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view word = argv[i];
    char* end = nullptr;
    if (i + 1 < argc && word == "--seconds") options.seconds = std::strtod(argv[i + 1], &end);
    if (i + 1 < argc && word == "--seed") options.seed = std::strtoull(argv[i + 1], &end, 10);
    if (end == nullptr || *end != '\0') {
      fmt::print(stderr, "usage: {} [--seconds S] [--seed X]\n", argv[0]);
      std::exit(2);
    }
  }
  return options;
}

/// Seconds since it was made, and a line on standard error about twice a second: rewritten on a
/// terminal, elsewhere a line every ten seconds.
class Progress {
 public:
  explicit Progress(std::string name) : name_(std::move(name)) {}
  ~Progress() {
    if (terminal_) fmt::print(stderr, "\r\x1b[K");
  }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void show(const std::string& text) {
    if (seconds() - shown_ < (terminal_ ? 0.5 : 10)) return;
    shown_ = seconds();
    fmt::print(stderr, "{}{}: {:.0f} s, {}{}", terminal_ ? "\r" : "", name_, shown_, text,
               terminal_ ? "" : "\n");
  }

 private:
  std::string name_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  double shown_ = 0;
  bool terminal_ = isatty(STDERR_FILENO) != 0;
};

}  // namespace attnforge::torture
