// kill.cpp - writers of one database are killed at random instants: whatever one had reported as
// stored is there afterwards, no half of a transaction is, and the file is sound.
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "attnforge/cache.h"
#include "cache/cache.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/mutate.h"
#include "tests/torture/options.h"

namespace attnforge::torture {
namespace {

constexpr int kWriters = 4;
constexpr int kBatch = 3;         // tries in one transaction
constexpr int kKillsAFile = 100;  // then a new one: look-ups stay fast
constexpr int kMostKillDelayUs = 20'000;
constexpr const char* kProblem = "fwd bf16 torture";
constexpr const char* kClass = "NVIDIA H200 sm_90a sms=132";

struct Counts {
  int kills = 0, files = 0, lost = 0, halves = 0, unsound = 0, failed = 0;
  long reported = 0;
  bool good() const { return lost == 0 && halves == 0 && unsound == 0 && failed == 0; }
  std::string text() const {
    return fmt::format(
        "{} kills of {} writers in {} files, {} rows reported as stored, {} lost, {} half "
        "transactions, {} files damaged, {} writers failed by themselves",
        kills, kWriters, files, reported, lost, halves, unsound, failed);
  }
};

std::string config(long batch, int i) { return fmt::format("fwd_test batch={} i={}", batch, i); }

/// Puts batches and reports the number of each one after put() has returned, until it is killed.
[[noreturn]] void write_for_ever(const std::string& path, int reports, long first_batch) {
  try {
    Cache cache(path);
    for (long batch = first_batch;; ++batch) {
      std::vector<Try> tries(kBatch);
      for (int i = 0; i < kBatch; ++i) {
        Try& t = tries[static_cast<std::size_t>(i)];
        t.problem = kProblem;
        t.device_class = kClass;
        t.config = config(batch, i);
        t.family = "fwd_test";
        t.digest = "d";
        t.measurement = {.status = Status::kOk, .time_us = 1.0 + static_cast<double>(batch)};
        t.measurement.detail = std::string(static_cast<std::size_t>(batch * 37 % 3000), 'x');
      }
      cache.put(tries);
      if (write(reports, &batch, sizeof(batch)) != sizeof(batch)) _exit(0);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "writer: {}\n", error.what());
    _exit(1);
  }
}

struct Writer {
  pid_t pid = 0;
  int reports = -1;  // read end
};

class Torture {
 public:
  Torture(const std::string& path, Counts& counts) : path_(path), counts_(counts) {
    for (Writer& writer : writers_) start(writer);
  }
  ~Torture() {
    for (Writer& writer : writers_) end(writer);
  }
  Torture(const Torture&) = delete;
  Torture& operator=(const Torture&) = delete;

  void kill_one(fuzz::Random& random) {
    usleep(static_cast<useconds_t>(random.below(kMostKillDelayUs)));
    Writer& writer = writers_[random.below(kWriters)];
    read_reports();
    end(writer);
    ++counts_.kills;
    start(writer);
  }

  /// All writers are dead afterwards.
  void check() {
    for (Writer& writer : writers_) end(writer);
    std::set<std::string> stored;
    for (const Try& t : Cache(path_).tries(kProblem, kClass)) stored.insert(t.config);
    std::map<long, int> halves;
    for (const std::string& text : stored) ++halves[std::stol(text.substr(text.find('=') + 1))];
    for (const auto& [batch, rows] : halves) counts_.halves += rows != kBatch;
    for (const long batch : reported_) {
      for (int i = 0; i < kBatch; ++i) counts_.lost += stored.count(config(batch, i)) == 0;
    }
    counts_.unsound += !cache_stats(path_).healthy;
  }

 private:
  void start(Writer& writer) {
    int ends[2];
    if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
    const long first_batch = 100'000 * next_++;
    writer.pid = fork();
    if (writer.pid < 0) throw std::runtime_error("fork failed");
    if (writer.pid == 0) {
      for (const Writer& other : writers_) {
        if (other.reports >= 0) close(other.reports);
      }
      close(ends[0]);
      write_for_ever(path_, ends[1], first_batch);
    }
    close(ends[1]);
    writer.reports = ends[0];
  }

  /// Kills it; what it had reported counts.
  void end(Writer& writer) {
    if (writer.pid == 0) return;
    kill(writer.pid, SIGKILL);
    int status = 0;
    waitpid(writer.pid, &status, 0);
    counts_.failed += WIFEXITED(status);
    long batch = 0;
    while (read(writer.reports, &batch, sizeof(batch)) == sizeof(batch)) add(batch);
    close(writer.reports);
    writer = {};
  }

  /// What is there, so that no pipe fills up.
  void read_reports() {
    for (Writer& writer : writers_) {
      pollfd ready{writer.reports, POLLIN, 0};
      long batch = 0;
      while (poll(&ready, 1, 0) == 1 && (ready.revents & POLLIN) != 0 &&
             read(writer.reports, &batch, sizeof(batch)) == sizeof(batch))
        add(batch);
    }
  }
  void add(long batch) {
    reported_.insert(batch);
    counts_.reported += kBatch;
  }

  const std::string path_;
  Counts& counts_;
  std::array<Writer, kWriters> writers_{};
  std::set<long> reported_;
  long next_ = 1;
};

int run(const Options& options) {
  const fuzz::ScratchFolder folder;
  fuzz::Random random(options.seed);
  Counts counts;
  Progress progress("torture_kill");
  while (progress.seconds() < options.seconds) {
    folder.empty();
    ++counts.files;
    Torture torture(folder.path("attnforge.db"), counts);
    for (int i = 0; i < kKillsAFile && progress.seconds() < options.seconds; ++i) {
      torture.kill_one(random);
      progress.show(counts.text());
    }
    torture.check();
  }
  fmt::print("torture_kill: {} in {:.1f} s, seed {}\n", counts.text(), progress.seconds(),
             options.seed);
  return counts.good() && counts.kills > 0 && counts.reported > 0 ? 0 : 1;
}

}  // namespace
}  // namespace attnforge::torture

int main(int argc, char** argv) {
  return attnforge::torture::run(attnforge::torture::read_options(argc, argv));
}
