// first_calls.cpp - drawn calls as a user's program makes them: each is the first one of a process,
// by the config that a plan has by default, and then others of its bucket come, whose plans run
// what was loaded for it. All against the reference, on NaN-poisoned outputs between canaries. Ends
// with 0 if everything was right, 1 if not, 77 without a GPU.
//   first_calls [--calls N] [--seed X] [--jobs N] [--launch-only]
//   first_calls --call I [--seed X] [--launch-only]      that one alone, in this process
// launch-only: nothing is computed or compared, sizes are a server's, and tensors nowhere: for the
// fake driver, which refuses what a GPU refuses of a launch.
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "reference/usable_cores.h"
#include "tests/conformance/any_case.h"
#include "tests/conformance/backward/backward_proof.h"
#include "tests/conformance/proof.h"
#include "tests/support/bucket_members.h"
#include "tests/support/random_choices.h"

namespace attnforge::test {
namespace {

constexpr int kRight = 0, kWrong = 1, kUsage = 2, kUnserved = 3, kSkipped = 77;
constexpr int kOthers = 2;              // of the bucket, after the first call
constexpr unsigned kCallSeconds = 120;  // after which a process is taken for one that hangs

struct Arguments {
  int calls = 320;
  std::uint64_t seed = 1;
  int jobs = std::min(usable_cores(), 16);
  bool launch_only = false;
  int call = -1;
  std::string database = ":memory:";
};

// ---- one process ----

struct Drawn {
  ConformanceCase how;
  std::vector<Problem> problems;  // the first call's, then others of its bucket
};

/// One of three is of backward. The same for the same seed and number, whoever asks.
Drawn drawn_call(const Arguments& arguments, int call) {
  constexpr MostSizes kOfServers{.batch_bits = 8, .heads_bits = 7, .seqlen_bits = 17};
  constexpr MostSizes kComputed{
      .batch_bits = 8, .heads_bits = 7, .seqlen_bits = 14, .flops = 5e8, .bytes = 192 << 20};
  RandomChoices choices(arguments.seed * 1'000'003 + static_cast<std::uint64_t>(call));
  const AnyCase drawn = any_case(choices, call % 3 == 2 ? Op::kBackward : Op::kForward,
                                 arguments.launch_only ? kOfServers : kComputed);
  Drawn result{drawn.how, {drawn.problem}};
  result.how.gaps.head = 0;  // others may have another layout
  for (int i = 0; i < kOthers; ++i)
    result.problems.push_back(member_of_bucket(choices, drawn.problem));
  return result;
}

/// Contiguous tensors at an address where nothing is.
Tensors tensors_nowhere(const Problem& problem) {
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
  const auto floats = static_cast<float*>(nowhere);
  const auto ints = static_cast<int*>(nowhere);
  Tensors t = contiguous_tensors(problem);
  for (Tensor* tensor : {&t.q, &t.k, &t.v, &t.o, &t.gradients.dout, &t.gradients.dq,
                         &t.gradients.dk, &t.gradients.dv})
    tensor->data = nowhere;
  t.lse.data = t.gradients.dlse.data = t.gradients.dsinks = floats;
  t.sinks = floats;
  for (ScaleTensor* scales : {&t.q_scale, &t.k_scale, &t.v_scale}) scales->data = floats;
  t.rope.cos = t.rope.sin = floats;
  t.rope.offset = std::max<std::int64_t>(0, problem.seqlen_q - problem.seqlen_kv);
  t.rope.rows = t.rope.offset + problem.seqlen_kv;
  t.lengths.q = t.lengths.kv = ints;
  t.block_mask.row_begin = t.block_mask.columns = t.block_mask.bit_blocks = ints;
  t.block_mask.bits = static_cast<const std::uint32_t*>(nowhere);
  t.pages.table = ints;
  t.pages.num_pages = 1000;
  return t;
}

/// `host` as it is after a run of the plan on freshly poisoned outputs and scratch.
HostProblem after_run(const Plan& plan, const HostProblem& host) {
  GpuProblem gpu(host);
  Buffer workspace((plan.workspace_bytes() + 3) / 4 * 4);
  workspace.fill32(0x7fd57fd5);  // NaN in each dtype
  Stream stream;
  check(driver().cuCtxSynchronize(), "wait for the uploads");
  plan.run(gpu.tensors, workspace.data(), stream.get());
  stream.synchronize();
  HostProblem after = host;
  gpu.download(after);
  return after;
}

template <class Expected>
std::string fault_against(const Plan& plan, const ConformanceCase& how) {
  const Expected expected(plan.problem(), how);
  HostProblem after = after_run(plan, expected.host);
  return fault_of(expected, after);
}

std::string fault_of(const Plan& plan, const Drawn& drawn, bool launch_only) {
  if (!launch_only)
    return is_backward(plan.problem()) ? fault_against<BackwardExpectation>(plan, drawn.how)
                                       : fault_against<Expectation>(plan, drawn.how);
  const Stream stream;
  void* const nowhere = reinterpret_cast<void*>(std::uintptr_t{1} << 40);
  plan.run(tensors_nowhere(plan.problem()), nowhere, stream.get());
  return "";
}

/// Prints what is wrong.
int run_call(const Arguments& arguments) {
  alarm(kCallSeconds);
  const Drawn drawn = drawn_call(arguments, arguments.call);
  const ScopedContext context(gpu_context());
  Device device({.cache_path = arguments.database});
  int status = kRight;
  for (std::size_t i = 0; i < drawn.problems.size(); ++i) {
    std::string fault, config;
    try {
      const Plan plan = make_plan(drawn.problems[i], device);
      config = plan.config();
      fault = fault_of(plan, drawn, arguments.launch_only);
    } catch (const Error& error) {
      // A backward family may be without a part.
      if (error.code() == ErrorCode::kUnsupported && is_backward(drawn.problems[i]))
        return kUnserved;
      fault = error.what();
    }
    if (fault.empty()) continue;
    status = kWrong;
    fmt::print("{}\n  \"{}\"\n  {}\n  inputs {}, gaps {} {}; {}\n", fault,
               to_string(drawn.problems[i]), config, static_cast<int>(drawn.how.inputs),
               drawn.how.gaps.row, drawn.how.gaps.rows_after,
               i == 0 ? "the first call" : "after another call of its bucket");
  }
  return status;
}

// ---- all of them ----

struct Counts {
  int first = 0, others = 0, unserved = 0, wrong = 0;
};

class Processes {
 public:
  Processes(const Arguments& arguments, std::string folder)
      : arguments_(arguments), folder_(std::move(folder)) {}

  void start(int call) {
    std::vector<std::string> words = {
        "first_calls",
        "--call",
        std::to_string(call),
        "--seed",
        std::to_string(arguments_.seed),
        "--database",
        folder_ + "/attnforge.db",  // of all: cubins alone are in it, as nobody tunes
    };
    if (arguments_.launch_only) words.emplace_back("--launch-only");
    std::vector<char*> pointers;
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, said_of(call).c_str(),
                                     O_CREAT | O_WRONLY | O_TRUNC, 0600);
    posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
    pid_t pid = -1;
    const int failed = posix_spawn(&pid, "/proc/self/exe", &actions, nullptr, pointers.data(),
                                   environ);
    posix_spawn_file_actions_destroy(&actions);
    if (failed != 0) throw std::runtime_error("a process cannot be started");
    running_[pid] = call;
  }

  int running() const { return static_cast<int>(running_.size()); }

  /// Waits for the next one that ends, and judges it.
  void take_one(Counts& counts) {
    int status = 0;
    const pid_t pid = waitpid(-1, &status, 0);
    const auto ended = running_.find(pid);
    if (ended == running_.end()) throw std::runtime_error("no process ended");
    const int call = ended->second;
    running_.erase(ended);
    if (WIFEXITED(status) && WEXITSTATUS(status) == kUnserved) {
      ++counts.unserved;
      return;
    }
    ++counts.first;
    counts.others += kOthers;
    if (WIFEXITED(status) && WEXITSTATUS(status) == kRight) return;
    ++counts.wrong;
    std::ifstream said(said_of(call));
    fmt::print("first_calls: WRONG: call {} of seed {}{}\n", call, arguments_.seed,
               WIFSIGNALED(status) ? fmt::format(", ended by signal {}", WTERMSIG(status)) : "");
    std::fflush(stdout);
    std::cout << said.rdbuf() << std::flush;
  }

 private:
  std::string said_of(int call) const { return fmt::format("{}/{}.txt", folder_, call); }

  const Arguments& arguments_;
  std::string folder_;
  std::map<pid_t, int> running_;
};

int run_all(const Arguments& arguments) {
  if (const std::string problem = gpu_problem(); !problem.empty()) {
    fmt::print("first_calls: skipped: {}\n", problem);
    return kSkipped;
  }
  const auto start = std::chrono::steady_clock::now();
  std::string folder = (std::filesystem::temp_directory_path() / "first-calls-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw std::runtime_error("no folder " + folder);
  Counts counts;
  Processes processes(arguments, folder);
  for (int call = 0; call < arguments.calls; ++call) {
    if (processes.running() == arguments.jobs) processes.take_one(counts);
    processes.start(call);
  }
  while (processes.running() > 0) processes.take_one(counts);
  std::filesystem::remove_all(folder);
  fmt::print(
      "first_calls: {} first calls of a process and {} more of their buckets, {} served by nobody, "
      "{} wrong, in {:.0f} s, seed {}\n",
      counts.first, counts.others, counts.unserved, counts.wrong,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
      arguments.seed);
  return counts.wrong == 0 && counts.first > arguments.calls / 2 ? kRight : kWrong;
}

/// False for words that are none of the options.
bool read(int argc, char** argv, Arguments& arguments) {
  const auto number = [](const char* text, int least, int& to) {
    char* end = nullptr;
    to = static_cast<int>(std::strtol(text, &end, 10));
    return end != text && *end == '\0' && to >= least;
  };
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--launch-only") {
      arguments.launch_only = true;
      continue;
    }
    if (++i == argc) return false;
    char* end = nullptr;
    if (word == "--database") {
      arguments.database = argv[i];
    } else if (word == "--seed") {
      arguments.seed = std::strtoull(argv[i], &end, 10);
      if (end == argv[i] || *end != '\0') return false;
    } else if (!(word == "--calls" && number(argv[i], 1, arguments.calls)) &&
               !(word == "--jobs" && number(argv[i], 1, arguments.jobs)) &&
               !(word == "--call" && number(argv[i], 0, arguments.call))) {
      return false;
    }
  }
  return true;
}

}  // namespace
}  // namespace attnforge::test

int main(int argc, char** argv) {
  using namespace attnforge::test;
  Arguments arguments;
  if (!read(argc, argv, arguments)) {
    fmt::print(stderr,
               "usage: first_calls [--calls N] [--seed X] [--jobs N] [--launch-only]\n"
               "       first_calls --call I [--seed X] [--launch-only]\n");
    return kUsage;
  }
  try {
    return arguments.call >= 0 ? run_call(arguments) : run_all(arguments);
  } catch (const std::exception& error) {
    fmt::print("first_calls: {}\n", error.what());
    return kWrong;
  }
}
