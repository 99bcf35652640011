// bench_plan.cpp - what a plan costs the host: found in memory, for a new length, from the database
// in a fresh process; and what Plan::run adds to a bare launch.
#include <benchmark/benchmark.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <string>

#include "attnforge/device_memory.h"
#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "attnforge/tune.h"
#include "generator/candidates.h"
#include "runtime/bind_arguments.h"
#include "runtime/compile/compiler.h"
#include "runtime/device.h"
#include "runtime/driver.h"
#include "runtime/kernel.h"
#include "runtime/memory.h"
#include "templates/registry.h"

namespace {

using namespace attnforge;
using Clock = std::chrono::steady_clock;

constexpr const char* kProblem = "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal";
constexpr const char* kTinyProblem = "fwd bf16 batch=1 num_heads=1 seqlen=64 head_dim=64";

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// A database with one winner in a folder of its own, which others cannot write; removed at the
/// end.
struct TunedDatabase {
  std::filesystem::path folder = std::filesystem::temp_directory_path() / "attnforge_bench_XXXXXX";
  std::string path;

  TunedDatabase() {
    std::string name = folder;
    if (mkdtemp(name.data()) == nullptr)
      throw Error(ErrorCode::kIo, "cannot make a folder " + folder.string());
    folder = name;
    path = folder / "bench.db";
    Device device({.cache_path = path});
    tune(parse_problem(kProblem), device, {.rigor = Rigor::kQuick});
    make_plan(parse_problem(kProblem), device);
  }
  ~TunedDatabase() {
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
};

/// Of kProblem, each time with `fewer` queries and keys: lengths 3585 to 4096 share a bucket.
void plan_again(benchmark::State& state, const std::string& cache, int fewer) {
  Device device({.cache_path = cache});
  Problem problem = parse_problem(kProblem);
  make_plan(problem, device);
  while (state.KeepRunning()) {
    problem.seqlen_q = problem.seqlen_kv = problem.seqlen_q - fewer;
    benchmark::DoNotOptimize(make_plan(problem, device));
  }
}

/// Starts this program again for a single plan; the child prints its microseconds from a started
/// driver to the plan.
void plan_in_fresh_process(benchmark::State& state, const std::string& cache) {
  const std::string command = std::filesystem::read_symlink("/proc/self/exe").string() +
                              " --fresh-plan " + cache;
  while (state.KeepRunning()) {
    FILE* child = popen(command.c_str(), "r");
    double us = 0;
    const bool read = child != nullptr && std::fscanf(child, "%lf", &us) == 1;
    if (child == nullptr || pclose(child) != 0 || !read) {
      state.SkipWithError("the child process failed");
      break;
    }
    state.SetIterationTime(us / 1e6);
  }
}

int fresh_plan(const char* cache) {
  PrimaryContext primary(0);  // driver start: initialisation and the context
  const ScopedContext context(primary);
  { const Buffer first_allocation(1 << 20); }
  const auto start = Clock::now();
  Device device({.cache_path = cache});
  const Plan plan = make_plan(parse_problem(kProblem), device,
                              {.policy = Policy::kCachedOnly, .allow_compile = false});
  std::printf("%f\n", seconds_since(start) * 1e6);
  return plan.provenance() == Provenance::kMeasured ? 0 : 1;
}

/// Host time of a launch: many in a row, then the GPU is waited for outside of the time.
template <class Launch>
void time_launches(benchmark::State& state, const Launch& launch) {
  constexpr int kInARow = 200;
  while (state.KeepRunning()) {
    const auto start = Clock::now();
    for (int i = 0; i < kInARow; ++i) launch();
    state.SetIterationTime(seconds_since(start) / kInARow);
    check(driver().cuCtxSynchronize(), "wait for the launches");
  }
}

void run_plan(benchmark::State& state) {
  Device device({.cache_path = ":memory:"});
  const Plan plan = make_plan(parse_problem(kTinyProblem), device);
  const DeviceTensors memory = upload_tensors(device, plan, random_host_tensors(plan.problem(), 1));
  PrimaryContext primary(0);
  const ScopedContext context(primary);
  time_launches(state, [&] { plan.run(memory.tensors, memory.workspace.data()); });
}

void bare_launch(benchmark::State& state) {
  PrimaryContext primary(0);
  const ScopedContext context(primary);
  const DeviceFacts facts = enumerate_devices().at(0);
  const Problem problem = parse_problem(kTinyProblem);
  const Candidate candidate = untuned(registry(), problem, facts);
  const Cubin cubin = compile(candidate.family->render(candidate.config, problem), facts.arch);
  const LaunchStep step = candidate.family->launch(candidate.config, problem, facts).steps.at(0);
  const Kernel kernel = Kernel::load(cubin.bytes, step.kernel, step.smem_bytes);
  const Buffer tensors(1 << 20);
  Tensors bound = contiguous_tensors(problem);
  bound.q.data = bound.k.data = bound.v.data = bound.o.data = tensors.data();
  alignas(64) std::byte params[kMaxParamsBytes];
  Buffer counters(kCounterBytes);
  counters.fill8(0);
  std::copy(step.params.begin(), step.params.end(), params);
  bind_arguments(step.args, step.from_workspace, bound, {.counters = counters.data()},
                 std::span(params, step.params.size()));
  void* arguments[] = {params};
  CUlaunchConfig config{};
  config.gridDimX = step.grid.x, config.gridDimY = step.grid.y, config.gridDimZ = step.grid.z;
  config.blockDimX = step.block.x, config.blockDimY = step.block.y, config.blockDimZ = step.block.z;
  config.sharedMemBytes = static_cast<unsigned>(step.smem_bytes);
  time_launches(state, [&] {
    check(driver().cuLaunchKernelEx(&config, kernel.function(), arguments, nullptr), "launch");
  });
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc == 3 && std::strcmp(argv[1], "--fresh-plan") == 0) return fresh_plan(argv[2]);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  const TunedDatabase database;
  using benchmark::RegisterBenchmark;
  RegisterBenchmark("plan/in_memory",
                    [&](benchmark::State& state) { plan_again(state, database.path, 0); });
  RegisterBenchmark("plan/new_length_in_bucket", [&](benchmark::State& state) {
    plan_again(state, database.path, 1);
  })->Iterations(500);
  RegisterBenchmark("plan/from_database_in_fresh_process",
                    [&](benchmark::State& state) { plan_in_fresh_process(state, database.path); })
      ->UseManualTime()
      ->Iterations(10)
      ->Unit(benchmark::kMillisecond);
  RegisterBenchmark("launch/plan_run", run_plan)->UseManualTime()->Iterations(200);
  RegisterBenchmark("launch/bare", bare_launch)->UseManualTime()->Iterations(200);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_plan: %s\n", error.what());
  return 1;
}
