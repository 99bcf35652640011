// bench.cpp - attnforge bench: times of the plans of problems, cold L2, as a table, CSV, JSON and
// pictures.
#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>

#include "attnforge/measure.h"
#include "attnforge/tune.h"
#include "cli/options/gpus.h"
#include "cli/output/bench_rows.h"
#include "cli/output/table.h"
#include "cli/parts/part.h"
#include "cli/plot/figure.h"
#include "cli/plot/sweep_figures.h"
#include "cli/terminal/progress.h"
#include "cli/verbs/memory_check.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct BenchArguments {
  std::vector<std::string> words, out;
  std::string file, cache, config, rigor;
  std::string families, plot, from;
  int gpu = 0;
  MeasureOptions measuring{.min_samples = 20, .cancelled = interrupted};
  bool csv = false, json = false, quiet = false, full = false;
  RunParts parts = run_parts();
};

constexpr const char* kBenchFooter =
    R"(A word with several values, seqlen=512,1024 or causal,full, makes a problem of each.
A time is the median over samples by the GPU's clock, the L2 cache overwritten before each.
TFLOP/s count the pairs that the mask lets through, where these can be counted; GB/s count each tensor once; MiB are what the tensors and the
workspace take. Arrays of --arg are made up, of an .npy file's type and size. What fails or is not served is a row with its reason, and the sweep goes on.

Examples:
  attnforge bench fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal
  attnforge bench fwd bf16,fp16 num_heads=16 seqlen=512,1024,2048,4096 head_dim=64,128 causal,full \
      --families all --out sweep.csv --out sweep.json --plot pictures
  attnforge bench fwd bf16 batch=2 num_heads=16 seqlen=8192 head_dim=128 --block 16,64,128 --density 0,0.25,0.5,0.75,1 --plot pictures
  attnforge bench --score 's + slope[head] * (k - q)' --arg slope=random fwd bf16 num_heads=16 seqlen=2048,8192 head_dim=128 causal
  attnforge bench --from sweep.csv --plot pictures     (no GPU: draws a sweep of before)
  attnforge bench --file problems.txt --families fwd_mma_sm80,fwd_naive --csv > times.csv
  attnforge bench "fwd bf16 seqlen=1024 head_dim=64" "fwd bf16 seqlen=2048 head_dim=64" --rigor quick --json)";

/// `family`: "" is any.
BenchRow bench_one(const BenchArguments& a, Device& device, const Problem& problem,
                   const std::string& family) {
  BenchRow row;
  row.problem = problem;
  row.asked = family;
  try {
    require_gpu_memory(problem, device.facts());
    require_host_memory(problem);
    if (!a.rigor.empty()) {
      tune(problem, device,
           {.rigor = parse_rigor(a.rigor), .family = family, .cancelled = interrupted});
    }
    const Plan plan = make_plan(
        problem, device, {.policy = Policy::kEstimate, .family = family, .config = a.config});
    row.config = plan.config();
    row.provenance = to_string(plan.provenance());
    row.result = measure(plan, device, a.measuring);
  } catch (const std::exception&) {
    note_failure(row.error, row.code, "use a smaller problem");
  }
  return row;
}

std::vector<std::string> families_of(const std::string& list) {
  if (list.empty()) return {""};
  if (list != "all") return names_of(list);
  std::vector<std::string> names;
  for (const FamilyInfo& family : list_families()) names.push_back(family.name);
  return names;
}

std::vector<Picture> pictures_of(const Table& rows) {
  std::vector<Picture> pictures;
  for (const Figure& figure : sweep_figures(rows)) pictures.push_back(picture_of(figure));
  return pictures;
}

/// The rows of a sweep: all, or those until an interrupt or the loss of the GPU.
std::vector<BenchRow> measured(const BenchArguments& a, const std::vector<Problem>& problems,
                               BenchOrigin& origin) {
  using Clock = std::chrono::steady_clock;
  const std::vector<std::string> families = families_of(a.families);
  Display display(1, a.quiet);
  Device device = open_gpu(
      a.gpu, a.cache, [&](std::string_view text) { display.message(text); },
      "configs are compiled and ranked: attnforge tune --arch sm_86 ...");
  BenchFiles files(a.out);  // after it: without a GPU what is in them stays
  origin = {device.facts(), utc_now()};
  std::vector<BenchRow> rows;
  Progress progress{.phase = Progress::Phase::kMeasure};
  progress.total = static_cast<int>(problems.size() * families.size());
  display.begin(0, "");
  const auto start = Clock::now();
  bool lost = false;
  for (const Problem& problem : problems) {
    for (const std::string& family : families) {
      if (interrupted() || lost) break;
      progress.elapsed_s = std::chrono::duration<double>(Clock::now() - start).count();
      const int left = progress.total - progress.done;
      progress.remaining_s = progress.done > 0 ? progress.elapsed_s / progress.done * left : 0;
      display.relabel(0, to_string(problem) + (family.empty() ? "" : " " + family));
      display.update(0, progress);
      const BenchRow& row = rows.emplace_back(bench_one(a, device, problem, family));
      files.add(row, origin);
      ++progress.done;
      progress.failed += !row.ok();
      lost = row.code == kCuda && !row.ok() && !gpu_works(device);
    }
  }
  display.end(0);
  files.finish(rows, origin, interrupted());
  if (lost && progress.done < progress.total) {
    display.message(fmt::format("attnforge: the GPU does not work any more after row {} of {}: {}",
                                progress.done, progress.total, rows.back().error));
  }
  return rows;
}

/// Pictures of a sweep of before. No GPU.
int draw_stored(const BenchArguments& a) {
  if (a.plot.empty()) {
    refuse(kInvalidArgument,
           "--from {} reads an earlier sweep; say where its pictures go: --plot FOLDER", a.from);
  }
  if (!a.words.empty() || !a.file.empty() || !a.out.empty()) {
    refuse(kInvalidArgument, "--from {} measures nothing; leave out the problem, --file and --out",
           a.from);
  }
  draw_results([&] { return pictures_of(read_sweep(a.from)); }, a.plot);
  return kExitOk;
}

/// Each problem with what options of the parts make of it.
std::vector<Problem> swept(std::vector<Problem> problems, const RunParts& parts) {
  for (const auto& part : parts) {
    std::vector<Problem> all;
    for (const Problem& problem : problems)
      std::ranges::move(part->swept(problem), std::back_inserter(all));
    problems = std::move(all);
  }
  return problems;
}

/// Throws Error(kInvalidArgument) for options that contradict each other.
void check_samples(MeasureOptions& options, bool most_given) {
  if (!most_given) options.max_samples = std::max(options.min_samples, options.max_samples);
  if (options.max_samples >= options.min_samples) return;
  refuse(kInvalidArgument, "--max-samples {} is less than --samples {}: at least so many are taken",
         options.max_samples, options.min_samples);
}

int run_bench(const BenchArguments& a) {
  if (!a.from.empty()) return draw_stored(a);
  const std::vector<Problem> problems = swept(
      read_problems(a.words, a.file, "bench", reader_of(a.parts)), a.parts);
  const InterruptScope scope;
  BenchOrigin origin;
  const std::vector<BenchRow> rows = measured(a, problems, origin);
  if (a.json) {
    print_json(to_json(rows, origin, interrupted()));
  } else if (a.csv) {
    fmt::print("{}", csv(full_table(rows, origin)));
  } else {
    write_out(fmt::format("{}\n{}{}", describe(origin.device),
                          aligned(readable_table(rows, a.full)), uncounted_text(rows)));
  }
  std::fflush(stdout);
  const bool any = std::any_of(rows.begin(), rows.end(),
                               [](const BenchRow& row) { return row.ok(); });
  if (!a.plot.empty() && any)
    draw_results([&] { return pictures_of(full_table(rows, origin)); }, a.plot);
  if (interrupted()) return kExitInterrupted;
  for (const BenchRow& row : rows) {
    if (!row.ok()) return exit_code(row.code);
  }
  return kExitOk;
}

}  // namespace

Verb add_bench(Command& program) {
  auto arguments = std::make_shared<BenchArguments>();
  BenchArguments& a = *arguments;
  Command& verb = *program.add_subcommand("bench", "Time the kernels of problems");
  add_value(verb, "problem WORD ...", a.words, "Words of one or more problems");
  add_value(verb, "--file PATH", a.file,
            "A problem a line, # begins a comment; - is standard input");
  add_value(verb, "--families NAMES", a.families,
            "A row for each of these families, e.g. fwd_mma_sm80,fwd_naive; or all")
      ->check(names());
  add_value(verb, "--config TEXT", a.config,
            "Exactly this config, as tune --full and inspect --full print it");
  for (const auto& part : a.parts) {
    part->add_sweep_options(verb);
    part->add_problem_options(verb);
  }
  verb.add_option("--rigor", a.rigor, "Tune first: quick, full or exhaustive")
      ->check(one_of({"quick", "full", "exhaustive"}));
  add_number(verb, "--samples N", a.measuring.min_samples, "Take at least this many", 1,
             kMostSamples);
  auto* most = add_number(verb, "--max-samples N", a.measuring.max_samples,
                          "Take at most this many", 1, kMostSamples);
  verb.add_option("--seconds", a.measuring.time_limit_s, "Stop sampling a problem after this time")
      ->transform(seconds());
  add_number(verb, "--seed N", a.measuring.seed, "Of the inputs");
  add_number(verb, "--gpu N", a.gpu, "CUDA number of the GPU");
  add_cache_option(verb, a.cache);
  may_repeat(
      add_value(verb, "--out PATH", a.out,
                "Also write the rows to this file, .csv (row by row) or .json; may be repeated"));
  add_value(verb, "--plot FOLDER", a.plot,
            "Draw latency, throughput, memory, padding waste and density in this folder (gnuplot)");
  add_value(verb, "--from PATH", a.from, "Measure nothing: the rows of this CSV file, for --plot");
  verb.add_flag("-q,--quiet", a.quiet, "No progress");
  verb.add_flag("--full", a.full, kFullHelp);
  auto* csv = verb.add_flag("--csv", a.csv, "As CSV");
  verb.add_flag("--json", a.json, "As JSON")->excludes(csv);
  verb.footer(kBenchFooter);
  return [arguments, most] {
    check_samples(arguments->measuring, most->count() > 0);
    return run_bench(*arguments);
  };
}

}  // namespace attnforge::cli
