// bench_kernels.cpp - the kernels that plans choose, over the problem lists. Cold L2, random
// inputs, on the GPU's clock. The database decides what runs: tune first (attnforge tune --file
// bench/problems/main.txt) or see the untuned choice.
#include <benchmark/benchmark.h>

#include <cstdio>
#include <exception>
#include <string>

#include "attnforge/measure.h"
#include "attnforge/plan.h"
#include "bench/problem_list.h"

namespace {

using namespace attnforge;

void run_kernel(benchmark::State& state, Device& device, const Problem& problem) {
  const Plan plan = make_plan(problem, device);
  BenchResult result;
  for ([[maybe_unused]] auto _ : state) {
    result = measure(plan, device);
    state.SetIterationTime(result.time_us / 1e6);
  }
  state.counters["TFLOP/s"] = result.tflops_per_s;
  state.counters["GB/s"] = result.gbytes_per_s;
  state.counters["noise"] = result.noise;
  state.SetLabel(std::string(to_string(plan.provenance())) + " " + plan.config());
}

}  // namespace

int main(int argc, char** argv) try {
  Device device;
  for (const char* list : {"main", "odd_head_dims", "models"}) {
    for (const Problem& problem :
         read_problem_list(std::string(ATTNFORGE_PROBLEMS "/") + list + ".txt")) {
      const std::string name = std::string(list) + "/" + to_string(problem);
      benchmark::RegisterBenchmark(
          name.c_str(),
          [&device, problem](benchmark::State& state) { run_kernel(state, device, problem); })
          ->UseManualTime()
          ->Iterations(1)
          ->Unit(benchmark::kMicrosecond);
    }
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
} catch (const std::exception& error) {
  std::fprintf(stderr, "bench_kernels: %s\n", error.what());
  return 1;
}
