// processes.cpp - 8 to 32 processes meet an empty database at once and tune one problem: one of
// them does, all end with its winner, also where those that tune are killed. Rounds of new files;
// the tuning is a pause, so that what is tested is the database and its leases.
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <optional>
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

constexpr const char* kProblem = "fwd bf16 torture";
constexpr const char* kClass = "NVIDIA H200 sm_90a sms=132";
constexpr useconds_t kTuningUs = 30'000;
constexpr double kLeaseSeconds = 30;  // only a dead owner's lease is taken over in a round
constexpr double kMostSeconds = 20;   // a process that takes longer waits for ever

struct Counts {
  int rounds = 0, processes = 0, tunings = 0, kills = 0;
  int others = 0;  // winners that differ from the first process's
  int twice = 0;   // tunings beside one that was not killed
  int failed = 0, unsound = 0;
  bool good() const { return others == 0 && twice == 0 && failed == 0 && unsound == 0; }
  std::string text() const {
    return fmt::format(
        "{} rounds with {} processes, {} tunings, {} of them killed, {} beside another, {} other "
        "winners, {} processes failed, {} files damaged",
        rounds, processes, tunings, kills, twice, others, failed, unsound);
  }
};

/// What a process tells: it begins to tune (winner -1), or it has a winner.
struct Report {
  pid_t pid;
  int winner;
};

std::string config(int winner) { return fmt::format("fwd_test winner={}", winner); }

std::optional<int> stored_winner(Cache& cache) {
  const auto found = cache.best(
      kProblem, {.device_class = kClass, .driver = "", .nvrtc = "", .sm = 90},
      [](std::string_view) { return std::string("d"); }, Rigor::kQuick);
  if (!found) return std::nullopt;
  return std::stoi(found->best.config.substr(found->best.config.find('=') + 1));
}

void tune(Cache& cache, int winner) {
  usleep(kTuningUs);
  Try t;
  t.problem = kProblem;
  t.device_class = kClass;
  t.config = config(winner);
  t.digest = "d";
  t.rigor = Rigor::kQuick;
  t.measurement = {.status = Status::kOk, .time_us = 10.0 + winner};
  cache.put({t});
  cache.finish(kProblem, kClass, Rigor::kQuick, t.config);
}

/// The winner, tuned here if nobody else does.
[[noreturn]] void live(const std::string& path, int number, int reports) {
  alarm(static_cast<unsigned>(kMostSeconds));
  const auto report = [&](int winner) {
    const Report text{getpid(), winner};
    if (write(reports, &text, sizeof(text)) != sizeof(text)) _exit(1);
  };
  try {
    Cache cache(path, false, [](LogLevel, std::string_view message) {
      fmt::print(stderr, "\nsaid: {}\n", message);
      _exit(1);
    });
    for (;;) {
      if (const auto winner = stored_winner(cache)) {
        report(*winner);
        _exit(0);
      }
      if (!cache.acquire_lease(kProblem, kClass, kLeaseSeconds)) {
        usleep(2000);
        continue;
      }
      if (!stored_winner(cache)) {  // else it was finished meanwhile
        report(-1);
        tune(cache, number);
      }
      cache.release_lease(kProblem, kClass);
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "\nprocess: {}\n", error.what());
    _exit(1);
  }
}

void run_round(const std::string& path, fuzz::Random& random, Counts& counts) {
  const auto processes = static_cast<int>(8 + random.below(25));
  const bool kill_first = random.below(3) == 0;
  int ends[2];
  if (pipe(ends) != 0) throw std::runtime_error("pipe failed");
  std::set<pid_t> alive;
  for (int i = 0; i < processes; ++i) {
    const pid_t child = fork();
    if (child < 0) throw std::runtime_error("fork failed");
    if (child == 0) {
      close(ends[0]);
      live(path, i, ends[1]);
    }
    alive.insert(child);
  }
  close(ends[1]);
  pid_t killed = 0;
  int tunings = 0;
  std::set<int> winners;
  Report report{};
  while (read(ends[0], &report, sizeof(report)) == sizeof(report)) {
    if (report.winner >= 0) {
      winners.insert(report.winner);
      continue;
    }
    ++tunings;
    if (kill_first && killed == 0) {
      usleep(static_cast<useconds_t>(random.below(kTuningUs / 2)));
      kill(report.pid, SIGKILL);
      killed = report.pid;
    }
  }
  close(ends[0]);
  for (const pid_t child : alive) {
    int status = 0;
    waitpid(child, &status, 0);
    const bool died_as_wanted = child == killed && WIFSIGNALED(status);
    if (!died_as_wanted && status != 0) ++counts.failed;
  }
  ++counts.rounds;
  counts.processes += processes;
  counts.tunings += tunings;
  counts.kills += killed != 0;
  counts.twice += std::max(0, tunings - (killed != 0) - 1);
  counts.others += static_cast<int>(winners.size()) - 1;
  counts.unsound += !cache_stats(path).healthy;
}

int run(const Options& options) {
  const fuzz::ScratchFolder folder;
  fuzz::Random random(options.seed);
  Counts counts;
  Progress progress("torture_processes");
  while (progress.seconds() < options.seconds) {
    folder.empty();
    run_round(folder.path("new/attnforge.db"), random, counts);
    progress.show(counts.text());
  }
  fmt::print("torture_processes: {} in {:.1f} s, seed {}\n", counts.text(), progress.seconds(),
             options.seed);
  return counts.good() && counts.rounds > 0 ? 0 : 1;
}

}  // namespace
}  // namespace attnforge::torture

int main(int argc, char** argv) {
  return attnforge::torture::run(attnforge::torture::read_options(argc, argv));
}
