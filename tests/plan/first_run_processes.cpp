// first_run_processes.cpp - many processes meet an empty database with policy first_run: one tunes,
// all end with its winner, and nobody's first call takes longer than its time limit. A program of
// its own, for real GPUs and for the fake one; ends with 0 if all of that held, 1 if not, 77
// without a GPU. A lone round prints a table of its processes; of many rounds only the wrong ones
// do.
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace {

using namespace attnforge;
using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

constexpr int kSkipped = 77;

struct Arguments {
  int processes = 8;
  int rounds = 1;
  double limit_s = 8;
  double slack_s = 0.05;     // for processes that a busy system does not run at once
  bool together = false;     // first calls begin when all have opened the GPU
  bool kill_holder = false;  // the process that tunes is killed in the middle
  // Not its bucket's, which has 4096.
  std::string problem = "fwd bf16 batch=1 num_heads=32:8 seqlen=4000 head_dim=128 causal";
};

// ---- a child: opens the GPU, plans, tells ----

/// Lines to the parent: "log TEXT", "opened S", "planned S US PROVENANCE CONFIG". Asks again for
/// each line that it is sent.
int child(const std::string& database, double limit_s, const std::string& text, bool together) {
  const auto say = [](const std::string& line) {
    const std::string whole = line + "\n";
    if (write(STDOUT_FILENO, whole.data(), whole.size()) < 0) std::_Exit(1);
  };
  const Clock::time_point start = Clock::now();
  Device device({.cache_path = database, .log = [&](LogLevel, std::string_view message) {
                   say(fmt::format("log {}", message));
                 }});
  say(fmt::format("opened {:.3f}", seconds_since(start)));
  PlanOptions options;
  options.policy = Policy::kFirstRun;
  options.time_limit_s = limit_s;
  std::string line;
  bool wait = together;
  for (;;) {
    if (wait && !std::getline(std::cin, line)) return 0;
    wait = true;
    const Clock::time_point called = Clock::now();
    const Plan plan = make_plan(parse_problem(text), device, options);
    const double seconds = seconds_since(called);
    say(fmt::format("planned {:.3f} {:.2f} {} {}", seconds, plan.measured_us(),
                    to_string(plan.provenance()), plan.config()));
  }
}

// ---- the parent ----

struct Planned {
  double seconds = 0, measured_us = 0;
  std::string provenance, config;
};

struct Child {
  pid_t pid = -1;
  int in = -1, out = -1;  // its standard input, its standard output
  std::string buffer;
  double opened_s = -1;
  std::vector<Planned> planned;
  std::vector<std::string> log;
  bool killed = false, ended = false;

  int searches() const {
    return static_cast<int>(std::count_if(log.begin(), log.end(), [](const std::string& line) {
      return line.rfind("tuning \"", 0) == 0;
    }));
  }
  /// Of these, that time the problem itself beside that of its bucket.
  int searches_as_asked() const {
    return static_cast<int>(std::count_if(log.begin(), log.end(), [](const std::string& line) {
      return line.rfind("tuning \"", 0) == 0 && line.ends_with("timed as asked too");
    }));
  }
};

Child start(const Arguments& arguments, const std::string& database) {
  int in[2], out[2];
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) throw std::runtime_error("no pipes");
  Child result;
  result.pid = fork();
  if (result.pid == 0) {
    dup2(in[0], STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    const std::string limit = fmt::format("{}", arguments.limit_s);
    const char* words[] = {"first_run_processes",
                           "--child",
                           database.c_str(),
                           limit.c_str(),
                           arguments.problem.c_str(),
                           arguments.together ? "together" : "freely",
                           nullptr};
    execv("/proc/self/exe", const_cast<char* const*>(words));
    _exit(127);
  }
  close(in[0]);
  close(out[1]);
  result.in = in[1];
  result.out = out[0];
  return result;
}

void take_line(Child& child, const std::string& line) {
  std::istringstream words(line);
  std::string kind;
  words >> kind;
  if (kind == "opened") words >> child.opened_s;
  if (kind == "log") child.log.push_back(line.substr(4));
  if (kind == "planned") {
    Planned planned;
    words >> planned.seconds >> planned.measured_us >> planned.provenance >> std::ws;
    std::getline(words, planned.config);
    child.planned.push_back(planned);
  }
}

/// Reads what children say until `done()`, or nobody is left, or `seconds` have passed.
template <class Done>
bool listen(std::vector<Child>& children, double seconds, Done done) {
  const Clock::time_point start = Clock::now();
  while (!done()) {
    std::vector<pollfd> polled;
    std::vector<Child*> of;
    for (Child& child : children) {
      if (child.ended) continue;
      polled.push_back({child.out, POLLIN, 0});
      of.push_back(&child);
    }
    if (polled.empty() || seconds_since(start) > seconds) return false;
    poll(polled.data(), polled.size(), 20);
    for (std::size_t i = 0; i < polled.size(); ++i) {
      if (polled[i].revents == 0) continue;
      char bytes[4096];
      const ssize_t count = read(of[i]->out, bytes, sizeof bytes);
      if (count <= 0) {
        of[i]->ended = true;
        continue;
      }
      std::string& buffer = of[i]->buffer;
      buffer.append(bytes, static_cast<std::size_t>(count));
      for (std::size_t end; (end = buffer.find('\n')) != std::string::npos;
           buffer.erase(0, end + 1)) {
        take_line(*of[i], buffer.substr(0, end));
      }
    }
  }
  return true;
}

void go(Child& child) {
  if (!child.ended && write(child.in, "\n", 1) < 0) child.ended = true;
}

/// Has everybody make two plans, and kills who tunes if that is asked for. `faults` takes what
/// stands in the way.
void play(const Arguments& arguments, int round, std::vector<Child>& children,
          std::vector<std::string>& faults) {
  const double patience_s = 60 + 3 * arguments.limit_s;
  const auto listen_until_all = [&](auto holds) {
    listen(children, patience_s, [&] {
      return std::all_of(children.begin(), children.end(),
                         [&](const Child& c) { return c.killed || c.ended || holds(c); });
    });
  };
  if (arguments.together) {
    listen_until_all([](const Child& c) { return c.opened_s >= 0; });
    for (Child& child : children) go(child);
  }
  if (arguments.kill_holder) {
    const auto tunes = [](const Child& c) { return c.searches() > 0; };
    const auto somebody = [&] { return std::any_of(children.begin(), children.end(), tunes); };
    if (!listen(children, patience_s, somebody)) faults.push_back("nobody began to tune");
    // At another time in each round; later ones could find it done.
    const double share = 0.4 * (round - 0.5) / arguments.rounds;
    listen(children, share * arguments.limit_s, [] { return false; });
    const auto holder = std::find_if(children.begin(), children.end(), tunes);
    if (holder != children.end() && holder->planned.empty()) {
      holder->killed = true;
      kill(holder->pid, SIGKILL);
    }
  }
  listen_until_all([](const Child& c) { return c.planned.size() == 1; });
  // A plan that had to go on with something else looks for the winner a second later.
  std::this_thread::sleep_for(std::chrono::milliseconds(1100));
  for (Child& child : children) {
    if (!child.killed) go(child);
  }
  listen_until_all([](const Child& c) { return c.planned.size() == 2; });
}

/// What is wrong, a line each.
void judge(const Arguments& arguments, const std::vector<Child>& children,
           std::vector<std::string>& faults) {
  std::set<std::string> winners;
  int searches = 0, expected = 1;
  for (const Child& child : children) {
    searches += child.searches();
    if (child.searches_as_asked() != child.searches())
      faults.push_back(fmt::format("process {} tuned for its bucket alone", child.pid));
    if (child.killed) {
      ++expected;
      continue;
    }
    if (child.planned.size() < 2) {
      faults.push_back(
          fmt::format("process {} made {} of 2 plans", child.pid, child.planned.size()));
      continue;
    }
    const Planned& first = child.planned[0];
    winners.insert(first.config);
    if (first.provenance != "measured")
      faults.push_back(
          fmt::format("process {}: its first plan was {}", child.pid, first.provenance));
    if (first.seconds > arguments.limit_s + arguments.slack_s)
      faults.push_back(fmt::format("process {}: its first call took {:.2f} s, the limit is {} s",
                                   child.pid, first.seconds, arguments.limit_s));
    if (child.planned[1].config != first.config)
      faults.push_back(fmt::format("process {}: its next plan has another config, {}", child.pid,
                                   child.planned[1].config));
  }
  if (searches != expected)
    faults.push_back(fmt::format("{} processes tuned, not {}", searches, expected));
  if (winners.size() != 1) faults.push_back(fmt::format("{} winners, not 1", winners.size()));
}

void print_table(const Arguments& arguments, const std::vector<Child>& children) {
  fmt::print("{} processes, limit {} s, {}\n", children.size(), arguments.limit_s,
             arguments.problem);
  fmt::print("{:>8} {:>9} {:>13} {:>9} {:>11}\n", "pid", "opened s", "first call s", "us", "");
  for (const Child& child : children) {
    fmt::print("{:>8} {:>9.2f}", child.pid, child.opened_s);
    if (!child.planned.empty()) {
      const Planned& first = child.planned.front();
      fmt::print(" {:>13.2f} {:>9.2f} {:>11}  {}", first.seconds, first.measured_us,
                 first.provenance, first.config);
    }
    fmt::print("{}{}\n", child.searches() > 0 ? "  (tuned)" : "", child.killed ? "  (killed)" : "");
  }
}

/// Whether a round was right.
bool run_round(const Arguments& arguments, int round) {
  std::string folder = (std::filesystem::temp_directory_path() / "first-run-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder " + folder);
  std::vector<Child> children;
  for (int i = 0; i < arguments.processes; ++i)
    children.push_back(start(arguments, folder + "/absent/folder/attnforge.db"));
  std::vector<std::string> faults;
  play(arguments, round, children, faults);
  judge(arguments, children, faults);

  if (arguments.rounds == 1 || !faults.empty()) print_table(arguments, children);
  for (const Child& child : children) {
    for (const std::string& line : child.log) {
      if (!faults.empty()) fmt::print("  {}: {}\n", child.pid, line);
    }
  }
  for (const std::string& fault : faults) fmt::print("WRONG: {}\n", fault);
  std::fflush(stdout);
  for (Child& child : children) {
    close(child.in);
    if (!child.killed && !child.ended) listen(children, 10, [&] { return child.ended; });
    if (!child.ended) kill(child.pid, SIGKILL);
    close(child.out);
    child.ended = true;
    waitpid(child.pid, nullptr, 0);
  }
  std::filesystem::remove_all(folder);
  return faults.empty();
}

int parent(const Arguments& arguments) {
  setenv("ATTNFORGE_LOG", "info", 1);
  signal(SIGPIPE, SIG_IGN);
  int right = 0;
  for (int round = 1; round <= arguments.rounds; ++round)
    right += run_round(arguments, round) ? 1 : 0;
  fmt::print("{} of {} rounds with {} processes were right\n", right, arguments.rounds,
             arguments.processes);
  return right == arguments.rounds ? 0 : 1;
}

int usage() {
  std::fputs(
      "usage: first_run_processes [--processes N] [--rounds N] [--limit SECONDS] [--together]\n"
      "                           [--kill-holder] [--problem TEXT] [--slack SECONDS]\n",
      stderr);
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + 1, argv + argc);
  try {
    if (words.size() == 5 && words[0] == "--child")
      return child(words[1], std::atof(words[2].c_str()), words[3], words[4] == "together");
    Arguments arguments;
    for (std::size_t i = 0; i < words.size(); ++i) {
      const std::string& word = words[i];
      if (word == "--together") {
        arguments.together = true;
      } else if (word == "--kill-holder") {
        arguments.kill_holder = true;
      } else if (i + 1 == words.size()) {
        return usage();
      } else if (word == "--processes") {
        arguments.processes = std::atoi(words[++i].c_str());
      } else if (word == "--rounds") {
        arguments.rounds = std::atoi(words[++i].c_str());
      } else if (word == "--limit") {
        arguments.limit_s = std::atof(words[++i].c_str());
      } else if (word == "--slack") {
        arguments.slack_s = std::atof(words[++i].c_str());
      } else if (word == "--problem") {
        arguments.problem = words[++i];
      } else {
        return usage();
      }
    }
    // Asked in a child's place: a process that knows CUDA must not fork.
    const pid_t probe = fork();
    if (probe == 0) _exit(enumerate_devices().empty() ? 1 : 0);
    int status = 0;
    waitpid(probe, &status, 0);
    if (status != 0) {
      std::puts("no GPU");
      return kSkipped;
    }
    return parent(arguments);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
