// bench_compile.cpp - NVRTC time of one kernel, cold and on one core, for every family and arch,
// and for the winners that peers.py found on an H200. Needs no GPU.
#include <benchmark/benchmark.h>

#include <fstream>
#include <set>
#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/candidates.h"
#include "runtime/compiler.h"
#include "templates/registry.h"

namespace {

using namespace attnforge;

void time_compile(benchmark::State& state, const Source& source, const Arch& arch) {
  Cubin cubin;
  for (auto _ : state) {
    cubin = compile(source, arch);
    state.SetIterationTime(cubin.compile_ms / 1e3);
  }
  state.counters["registers"] = cubin.registers;
  state.counters["spill_bytes"] = cubin.spill_store_bytes + cubin.spill_load_bytes;
  state.counters["cubin_bytes"] = static_cast<double>(cubin.bytes.size());
}

/// The configs in the last column of a file of peers.py, each once. Empty without the file.
std::set<std::string> winners(const std::string& path) {
  std::set<std::string> configs;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    const std::string last = line.substr(line.rfind(',') + 1);
    const std::string config = last.substr(0, last.find('\r'));
    if (line.starts_with("attnforge,") && !config.empty()) configs.insert(config);
  }
  return configs;
}

}  // namespace

int main(int argc, char** argv) {
  const char* problems[] = {
      "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal",
      "fwd bf16 batch=8 num_heads=32 seqlen=2048 head_dim=64 lse",
      "fwd bf16 batch=2 num_heads=8 seqlen=8192 head_dim=256 causal",
      "fwd bf16 batch=4 num_heads=25 seqlen=4096 head_dim=80 causal window_left=511 softcap=50",
  };
  for (const Family* family : registry()) {
    for (const char* arch : {"86", "89", "90a"}) {
      for (const char* text : problems) {
        const Problem problem = parse_problem(text);
        const DeviceFacts& device = typical_device(arch);
        if (!rejection(*family, problem, device.arch).empty()) continue;
        const std::string name = std::string(family->name) + "/sm" + arch + "/" +
                                 to_string(problem);
        benchmark::RegisterBenchmark(
            name.c_str(),
            [=, &device](benchmark::State& state) {
              const Config config = candidates(*family, problem, device).front().config;
              time_compile(state, family->render(config, problem), device.arch);
            })
            ->UseManualTime()
            ->Unit(benchmark::kMillisecond);
      }
    }
  }
  for (const std::string& text : winners(ATTNFORGE_RESULTS "/hopper.csv")) {
    benchmark::RegisterBenchmark(("winner/" + text).c_str(),
                                 [text](benchmark::State& state) {
                                   const Config config = parse_config(text);
                                   const Family* family = find_family(config.family);
                                   time_compile(state, family->render(config, Problem{}),
                                                typical_device("90a").arch);
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
