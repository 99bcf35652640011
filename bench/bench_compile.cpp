// bench_compile.cpp - NVRTC time of one kernel, cold and on one core, for every family and arch,
// and for the winners that peers.py and backward.py found on an H200 and an H100. Needs no GPU.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
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

std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream rest(line);
  for (std::string cell; std::getline(rest, cell, ',');) cells.push_back(cell);
  return cells;
}

/// The problem of a row: forward ones are asked for with lse, and backward ones have a list.
Problem problem_of(std::map<std::string, std::string> row) {
  const bool backward = row.contains("list");
  std::string text = fmt::format("{} {} batch={} num_heads={}:{} seqlen={}:{} head_dim={}:{}",
                                 backward ? "bwd" : "fwd", row["dtype"], row["batch"],
                                 row["num_heads_q"], row["num_heads_kv"], row["seqlen_q"],
                                 row["seqlen_kv"], row["head_dim"], row["head_dim_v"]);
  if (!backward) text += " lse";
  if (row["causal"] == "1") text += " causal";
  if (row["list"] == "deterministic") text += " deterministic";
  return parse_problem(text);
}

/// The kernels that a file of peers.py or backward.py names, but for configs that are no longer
/// legal: its first columns are a problem, and the last is a config. Each once, by digest. None
/// without the file.
void add_winners(const std::string& path, std::map<std::string, Winner>& kernels) {
  std::vector<std::string> columns;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    const std::vector<std::string> cells = cells_of(line.substr(0, line.find('\r')));
    if (columns.empty()) {
      columns = cells;
      continue;
    }
    std::map<std::string, std::string> row;  // as far as no cell has commas: the notes are last
    for (std::size_t i = 0; i < columns.size() && i < cells.size(); ++i) row[columns[i]] = cells[i];
    const std::string text = line.ends_with(',') ? "" : cells.back();
    if (row["impl"] != "attnforge" || text.empty()) continue;
    const Problem problem = problem_of(row);
    const Config config = parse_config(text);
    const Family& family = *find_family(config.family);
    if (!illegal(family, config, problem, typical_device("90a")).empty()) continue;
    const Source source = family.render(config, problem);
    kernels.emplace(digest(source), Winner{to_string(problem) + " " + to_string(config), source});
  }
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
  std::map<std::string, Winner> winners;
  for (const char* file : {"h200/hopper.csv", "h200/backward.csv", "h100/backward.csv"})
    add_winners(std::string(ATTNFORGE_RESULTS "/") + file, winners);
  for (const auto& [digest, winner] : winners) {
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
