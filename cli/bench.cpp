// bench.cpp - attnforge bench: times of the plans of problems, cold L2, as a table, CSV or JSON.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "attnforge/measure.h"
#include "attnforge/tune.h"
#include "attnforge/version.h"
#include "cli/gpus.h"
#include "cli/interrupt.h"
#include "cli/json.h"
#include "cli/problems.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cli/verbs.h"

namespace attnforge::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> words;
  std::string file, cache, config, rigor;
  std::string families;
  int gpu = 0;
  int min_samples = 20, max_samples = 200;
  double seconds = 1.0;
  unsigned seed = 1;
  bool csv = false, json = false;
};

constexpr const char* kFooter =
    R"(A word with several values, seqlen=512,1024 or causal,full, makes a problem of each.
A time is the median over samples by the GPU's clock, the L2 cache overwritten before each.
TFLOP/s count the pairs that the mask lets through; GB/s count each tensor once.

Examples:
  attnforge bench fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal
  attnforge bench fwd bf16,fp16 num_heads=16 seqlen=512,1024,2048,4096 head_dim=64,128 causal,full --csv > sweep.csv
  attnforge bench --file problems.txt --families fwd_mma_sm80,fwd_naive --csv > times.csv
  attnforge bench "fwd bf16 seqlen=1024 head_dim=64" "fwd bf16 seqlen=2048 head_dim=64" --rigor quick --json)";

/// One problem with one family ("" is any).
struct BenchRow {
  Problem problem;
  std::string family;
  BenchResult result;
  std::string config, provenance;
  std::string error;  // "" unless it failed
  ErrorCode code = ErrorCode::kInternal;
};

BenchRow bench_one(const BenchArguments& a, Device& device, const Problem& problem,
                   const std::string& family) {
  BenchRow row{.problem = problem,
               .family = family,
               .result = {},
               .config = {},
               .provenance = {},
               .error = {}};
  try {
    if (!a.rigor.empty()) {
      TuneOptions options;
      options.rigor = parse_rigor(a.rigor);
      options.family = family;
      options.cancelled = interrupted;
      tune(problem, device, options);
    }
    PlanOptions options;
    options.family = family;
    options.config = a.config;
    const Plan plan = make_plan(problem, device, options);
    row.config = plan.config();
    row.provenance = to_string(plan.provenance());
    row.result = measure(plan, device,
                         {.min_samples = a.min_samples,
                          .max_samples = std::max(a.min_samples, a.max_samples),
                          .time_limit_s = a.seconds,
                          .seed = a.seed});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kCuda)
      throw;  // the GPU may be lost: nothing after it would be right
    row.error = error.what();
    row.code = error.code();
  }
  return row;
}

Table table_of(const std::vector<BenchRow>& rows, bool for_people) {
  constexpr auto kRight = Column::Align::kRight;
  Table table{{{for_people ? "time us" : "time_us", kRight},
               {"noise", kRight},
               {"samples", kRight},
               {for_people ? "TFLOP/s" : "tflops_per_s", kRight},
               {for_people ? "GB/s" : "gbytes_per_s", kRight},
               {for_people ? "ns/token/head" : "ns_per_token_head", kRight},
               {"provenance"},
               {"problem"},
               {for_people ? "config or error" : "config"}},
              {}};
  if (!for_people) table.columns.push_back({"error"});
  const auto digits = [&](double value, int few) {
    return for_people ? fmt::format("{:.{}f}", value, few) : fmt::format("{}", value);
  };
  for (const BenchRow& row : rows) {
    const BenchResult& r = row.result;
    const bool ok = row.error.empty();
    std::vector<std::string> cells{
        digits(r.time_us, 2),
        for_people ? fmt::format("{:.1f}%", 100 * r.noise) : digits(r.noise, 4),
        std::to_string(r.samples),
        digits(r.tflops_per_s, 1),
        digits(r.gbytes_per_s, 1),
        digits(r.ns_per_token_head, 3)};
    if (!ok) std::fill(cells.begin(), cells.end(), for_people ? "-" : "");
    cells.push_back(ok ? row.provenance : for_people ? "failed" : "");
    cells.push_back(to_string(row.problem));
    const std::string first_line = row.error.substr(0, row.error.find('\n'));
    cells.push_back(ok ? row.config : for_people ? first_line : row.config);
    if (!for_people) cells.push_back(row.error);
    table.rows.push_back(std::move(cells));
  }
  return table;
}

Json json_of(const std::vector<BenchRow>& rows, const DeviceFacts& device, bool stopped) {
  Json results = Json::array();
  for (const BenchRow& row : rows) {
    const BenchResult& r = row.result;
    Json entry{{"problem", to_string(row.problem)}};
    if (!row.error.empty()) {
      entry["error"] = {{"code", to_string(row.code)}, {"message", row.error}};
    } else {
      entry.update({{"config", row.config},
                    {"provenance", row.provenance},
                    {"time_us", r.time_us},
                    {"min_us", r.min_us},
                    {"noise", r.noise},
                    {"clock_mhz", r.clock_mhz},
                    {"samples", r.samples},
                    {"tflops_per_s", r.tflops_per_s},
                    {"gbytes_per_s", r.gbytes_per_s},
                    {"ns_per_token_head", r.ns_per_token_head}});
    }
    results.push_back(entry);
  }
  return {{"attnforge", kVersion},
          {"device", to_json(device)},
          {"interrupted", stopped},
          {"results", results}};
}

int run_bench(const BenchArguments& a) {
  const std::vector<Problem> problems = read_problems(a.words, a.file, "bench");
  std::vector<std::string> families = names_of(a.families);
  if (families.empty()) families.emplace_back();
  Device device(
      {.ordinal = a.gpu, .cache_path = a.cache, .log = log_to_stderr(), .read_only_cache = false});

  const InterruptScope scope;
  std::vector<BenchRow> rows;
  for (const Problem& problem : problems) {
    for (const std::string& family : families) {
      if (interrupted()) break;
      rows.push_back(bench_one(a, device, problem, family));
      if (is_terminal(stderr))
        fmt::print(stderr, "\r{} of {}\x1b[K", rows.size(), problems.size() * families.size());
    }
  }
  if (is_terminal(stderr)) fmt::print(stderr, "\r\x1b[K");

  if (a.json) {
    print_json(json_of(rows, device.facts(), interrupted()));
  } else if (a.csv) {
    fmt::print("{}", csv(table_of(rows, false)));
  } else {
    fmt::print("{}\n{}", describe(device.facts()), aligned(table_of(rows, true)));
  }
  if (interrupted()) return kExitInterrupted;
  for (const BenchRow& row : rows) {
    if (!row.error.empty()) return exit_code(row.code);
  }
  return kExitOk;
}

}  // namespace

Verb add_bench(CLI::App& program) {
  auto arguments = std::make_shared<BenchArguments>();
  BenchArguments& a = *arguments;
  CLI::App* verb = program.add_subcommand("bench", "Time the kernels of problems");
  verb->add_option("problem", a.words, "Words of one or more problems")->type_name("WORD ...");
  verb->add_option("--file", a.file, "A problem a line, # begins a comment; - is standard input")
      ->type_name("PATH");
  verb->add_option("--families", a.families,
                   "A row for each of these families, e.g. fwd_mma_sm80,fwd_naive")
      ->type_name("NAMES");
  verb->add_option("--config", a.config, "Exactly this config, as tune and inspect print it")
      ->type_name("TEXT");
  verb->add_option("--rigor", a.rigor, "Tune first: quick, full or exhaustive")
      ->check(CLI::IsMember({"quick", "full", "exhaustive"}));
  verb->add_option("--samples", a.min_samples, "Take at least this many")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--max-samples", a.max_samples, "Take at most this many")
      ->type_name("N")
      ->check(CLI::PositiveNumber);
  verb->add_option("--seconds", a.seconds, "Stop sampling a problem after this time")
      ->check(CLI::NonNegativeNumber);
  verb->add_option("--seed", a.seed, "Of the inputs");
  verb->add_option("--gpu", a.gpu, "CUDA number of the GPU")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber);
  add_cache_option(*verb, a.cache);
  auto* csv = verb->add_flag("--csv", a.csv, "As CSV");
  verb->add_flag("--json", a.json, "As JSON")->excludes(csv);
  verb->footer(kFooter);
  return [arguments] { return run_bench(*arguments); };
}

}  // namespace attnforge::cli
