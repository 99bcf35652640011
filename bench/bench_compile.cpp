// bench_compile.cpp - NVRTC time of one kernel, cold and on one core, for every family and arch,
// and for the winners that peers.py found on an H200. Needs no GPU.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <array>
#include <fstream>
#include <map>
#include <sstream>
#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "runtime/compiler.h"
#include "templates/registry.h"

namespace {

using namespace attnforge;

void time_compile(benchmark::State& state, const Source& source, const Arch& arch) {
  Cubin cubin;
  for ([[maybe_unused]] auto _ : state) {
    cubin = compile(source, arch);
    state.SetIterationTime(cubin.compile_ms / 1e3);
  }
  state.counters["registers"] = cubin.registers;
  state.counters["spill_bytes"] = cubin.spill_store_bytes + cubin.spill_load_bytes;
  state.counters["cubin_bytes"] = static_cast<double>(cubin.bytes.size());
}

struct Winner {
  std::string name;  // problem and config
  Source source;
};

/// The kernels that a file of peers.py names: its first columns are a problem, which asks for lse,
/// and the last is a config. Each once, by digest. Empty without the file.
std::map<std::string, Winner> winners(const std::string& path) {
  std::map<std::string, Winner> kernels;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("attnforge,")) continue;
    std::istringstream cells(line);
    std::array<std::string, 10> cell;  // implementation, dtype, sizes, causal
    for (std::string& each : cell) std::getline(cells, each, ',');
    const std::string last = line.substr(line.rfind(',') + 1);
    const std::string text = last.substr(0, last.find('\r'));
    if (text.empty()) continue;
    const Problem problem = parse_problem(fmt::format(
        "fwd {} batch={} num_heads={}:{} seqlen={}:{} head_dim={}:{} lse{}", cell[1], cell[2],
        cell[3], cell[4], cell[5], cell[6], cell[7], cell[8], cell[9] == "1" ? " causal" : ""));
    Config config = read_config(text);
    drop_shape_words(config, shape_of(problem));
    const Source source = find_family(config.family)->render(config, problem);
    kernels.emplace(digest(source), Winner{to_string(problem) + " " + to_string(config), source});
  }
  return kernels;
}

/// What a search and an untuned plan begin with: the whole space walked, cut and ranked.
void time_candidates(benchmark::State& state) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=1 num_heads=32:8 seqlen=1024 head_dim=64 causal");
  const DeviceFacts& device = typical_device("90a");
  std::size_t count = 0;
  for ([[maybe_unused]] auto _ : state) {
    count = 0;
    for (const Family* family : registry()) {
      if (rejection(*family, problem, device.arch).empty())
        count += candidates(*family, problem, device).size();
    }
  }
  state.counters["configs"] = static_cast<double>(count);
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
        const std::string name = std::string(family->name) + "/sm_" + arch + "/" +
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
  for (const auto& [digest, winner] : winners(ATTNFORGE_RESULTS "/hopper.csv")) {
    benchmark::RegisterBenchmark(("winner/" + winner.name).c_str(),
                                 [source = winner.source](benchmark::State& state) {
                                   time_compile(state, source, typical_device("90a").arch);
                                 })
        ->UseManualTime()
        ->Iterations(1)
        ->Unit(benchmark::kMillisecond);
  }
  benchmark::RegisterBenchmark("candidates/all_families", time_candidates)
      ->Unit(benchmark::kMillisecond);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
