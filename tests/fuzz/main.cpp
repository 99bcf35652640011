// main.cpp - an ordinary program around a fuzz target: mutates its corpus, the same way for the
// same seed, and counts. Needs no compiler's support.
//
//   fuzz_NAME [--runs N] [--seconds S] [--seed X]     ends at the first of both; 1 s if none is
//   given fuzz_NAME FILE...                                 only these inputs fuzz_NAME
//   --write-corpus FOLDER                   for libFuzzer to start from
//
// The input at hand is always in a file beside, so that it survives any death of the process; the
// file is removed at a good end. An input that takes 20 s of the CPU, or two minutes, counts as
// endless.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <stdexcept>

#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ATTNFORGE_FUZZ_SANITIZED 1  // GCC
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define ATTNFORGE_FUZZ_SANITIZED 1  // clang
#endif
#endif

namespace attnforge::fuzz {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kMostCpuSeconds = 20;
constexpr unsigned kMostSeconds = 120;  // a busy machine may give us little of it
constexpr std::size_t kMostKept = 512;  // accepted inputs, from which mutation goes on

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// The input that is worked on, in a file that outlives the process: its first 8 bytes are the
/// length.
class InputAtHand {
 public:
  explicit InputAtHand(const std::string& name)
      : path_(fmt::format("{}.{}.input", name, getpid())) {
    const int file = open(path_.c_str(), O_RDWR | O_CREAT | O_TRUNC, 0644);
    if (file < 0 || ftruncate(file, kBytes) != 0)
      throw std::runtime_error("cannot write " + path_ + " in the current folder");
    memory_ = static_cast<char*>(
        mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0));
    close(file);
    if (memory_ == MAP_FAILED) throw std::runtime_error("cannot map " + path_);
  }
  void set(const std::string& input) {
    const std::uint64_t size = std::min(input.size(), kMostInputBytes);
    std::memcpy(memory_, &size, sizeof(size));
    std::memcpy(memory_ + sizeof(size), input.data(), size);
  }
  void remove() { unlink(path_.c_str()); }

 private:
  static constexpr std::size_t kBytes = kMostInputBytes + sizeof(std::uint64_t);
  std::string path_;
  char* memory_;
};

std::string read_input(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("cannot read " + path);
  std::string bytes(std::istreambuf_iterator<char>(file), {});
  std::uint64_t size = 0;
  if (!path.ends_with(".input") || bytes.size() < sizeof(size)) return bytes;
  std::memcpy(&size, bytes.data(), sizeof(size));
  return bytes.substr(sizeof(size), size);
}

void endless(int) {
  constexpr char kText[] = "\npromise broken: an input took too long\n";
  if (write(STDERR_FILENO, kText, sizeof(kText) - 1) < 0) _exit(3);
  std::abort();
}

/// A parser that asks for the memory of the whole machine gets std::bad_alloc, which is no answer.
/// Sanitizers reserve more than that for themselves.
void limit_memory() {
#ifndef ATTNFORGE_FUZZ_SANITIZED
  const rlimit limit{std::uint64_t{4} << 30, std::uint64_t{4} << 30};
  setrlimit(RLIMIT_AS, &limit);
#endif
}

struct Counts {
  std::uint64_t inputs = 0, accepted = 0;
  void run(const std::string& input) {
    const itimerval cpu{{0, 0}, {kMostCpuSeconds, 0}};
    setitimer(ITIMER_PROF, &cpu, nullptr);
    alarm(kMostSeconds);
    ++inputs;
    accepted += fuzz_one(reinterpret_cast<const std::uint8_t*>(input.data()), input.size()) != 0;
  }
  std::string text() const {
    return fmt::format("{} inputs, {} accepted, {} refused", inputs, accepted, inputs - accepted);
  }
};

struct Options {
  std::uint64_t runs = 0;  // 0: no limit
  double seconds = 0;      // 0: no limit
  std::uint64_t seed = 1;
};

Counts mutate_for(const Options& options, const std::string& name, InputAtHand& at_hand) {
  const std::vector<std::string> known_words = words();
  std::vector<std::string> kept = corpus();
  const std::size_t originals = kept.size();
  Random random(options.seed);
  Counts counts;
  const auto start = Clock::now();
  double last_shown = 0;
  const bool terminal = isatty(STDERR_FILENO) != 0;
  while (options.runs == 0 || counts.inputs < options.runs) {
    const double elapsed = seconds_since(start);
    if (options.seconds > 0 && elapsed >= options.seconds) break;
    if (elapsed - last_shown >= (terminal ? 0.5 : 10)) {
      last_shown = elapsed;
      fmt::print(stderr, "{}{}: {:.0f} s, {}{}", terminal ? "\r" : "", name, elapsed, counts.text(),
                 terminal ? "" : "\n");
    }
    // The corpus first as it is.
    const std::string input = counts.inputs < originals
                                  ? kept[counts.inputs]
                                  : mutated(kept[random.below(kept.size())],
                                            kept[random.below(kept.size())], known_words, random);
    at_hand.set(input);
    const std::uint64_t accepted = counts.accepted;
    counts.run(input);
    if (counts.accepted == accepted || counts.inputs <= originals || random.below(8) != 0) continue;
    if (kept.size() < originals + kMostKept) {
      kept.push_back(input);
    } else {
      kept[originals + random.below(kMostKept)] = input;
    }
  }
  if (terminal) fmt::print(stderr, "\r\x1b[K");
  fmt::print("{}: {} in {:.1f} s, seed {}: no promise broken\n", name, counts.text(),
             seconds_since(start), options.seed);
  return counts;
}

int run(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  Options options;
  std::vector<std::string> files;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw std::runtime_error(word + " needs a value");
      return argv[++i];
    };
    if (word == "--runs") {
      options.runs = std::stoull(value());
    } else if (word == "--seconds") {
      options.seconds = std::stod(value());
    } else if (word == "--seed") {
      options.seed = std::stoull(value());
    } else if (word == "--write-corpus") {
      const std::filesystem::path folder = value();
      std::filesystem::create_directories(folder);
      int number = 0;
      for (const std::string& input : corpus())
        std::ofstream(folder / std::to_string(number++), std::ios::binary) << input;
      return 0;
    } else if (word.starts_with("-")) {
      throw std::runtime_error("unknown option " + word);
    } else {
      files.push_back(word);
    }
  }
  if (options.runs == 0 && options.seconds == 0) options.seconds = 1;
  signal(SIGALRM, endless);
  signal(SIGPROF, endless);
  limit_memory();
  if (!files.empty()) {
    Counts counts;
    for (const std::string& file : files) counts.run(read_input(file));
    fmt::print("{}: {}: no promise broken\n", name, counts.text());
    return 0;
  }
  InputAtHand at_hand(name);
  const Counts counts = mutate_for(options, name, at_hand);
  at_hand.remove();
  if (counts.accepted > 0 || counts.inputs < 64) return 0;  // a busy machine may get no further
  fmt::print(stderr, "{}: nothing was accepted: the corpus is stale\n", name);
  return 1;
}

}  // namespace
}  // namespace attnforge::fuzz

int main(int argc, char** argv) {
  try {
    return attnforge::fuzz::run(argc, argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}: {}\n", argv[0], error.what());
    return 2;
  }
}
