// tune.cpp - attnforge tune: searches the configs of problems on one or more GPUs, keeps every try
// in the database.
#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <shared_mutex>
#include <thread>

#include "attnforge/cache.h"
#include "attnforge/check.h"
#include "cli/job/lanes.h"
#include "cli/job/tune_in_job.h"
#include "cli/options/gpus.h"
#include "cli/options/job_rank.h"
#include "cli/options/problems.h"
#include "cli/output/table.h"
#include "cli/output/tune_report.h"
#include "cli/plot/figure.h"
#include "cli/plot/landscape.h"
#include "cli/terminal/progress.h"
#include "cli/verbs/memory_check.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct TuneArguments {
  std::vector<std::string> words;
  std::string file, mpi, shard, cache;
  std::string gpu;
  std::string rigor = "full";
  TuneOptions options{.must_keep = true};
  bool json = false, quiet = false, full = false;
  int top = 0;
  std::string archs, plot, axes;
  int candidates = 8;
};

constexpr const char* kTuneFooter =
    R"(Progress goes to standard error, results to standard output. The first Ctrl-C stops the search, keeps what is done
and exits with 130; the second ends the program at once. Killed, it goes on where it was when it is started again.

Examples:
  attnforge tune fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal
  attnforge tune --file problems.txt --gpu all --rigor quick --time-limit 30
  srun -n 8 attnforge tune --file problems.txt --shard auto --cache /tmp/tuned.db   (then export each)
  mpirun --enable-recovery -n 8 attnforge tune --mpi problems.txt
  attnforge tune "fwd fp16 seqlen=1024 head_dim=64" --json --top 5
  attnforge tune --rigor exhaustive --plot pictures fwd bf16 seqlen=4096 head_dim=128
  attnforge tune --arch sm_86,sm_90a fwd bf16 seqlen=4096 head_dim=128   (no GPU: compiled and ranked by the model))";

/// Searches at a time on a GPU: one compiles and starts its worker while kernels of the other run.
/// A limit of time is for one that has the GPU alone, and a family that is named may be one that
/// takes all of the memory.
std::size_t searches_at_a_time(const TuneArguments& a) {
  return a.options.time_limit_s > 0 || !a.options.family.empty() ? 1 : 2;
}

/// Whether the tensors of two such problems, and what a search has of its own, may not fit side by
/// side.
bool is_large(const Problem& problem, const DeviceFacts& device) {
  return minimum_bytes(measured_as(problem)) > 0.15 * static_cast<double>(device.memory_bytes);
}

/// The problems of one command, handed out to the threads of each GPU. All GPUs are opened first,
/// so that a bad one is an error before anything is tuned.
std::vector<TuneJob> tuned(const TuneArguments& a, const std::vector<Problem>& problems,
                           const std::vector<int>& gpus) {
  // A plan goes on without a database; here it is what the work is for.
  if (const std::string objection = cache_objection(a.cache); !objection.empty())
    refuse(kCache, "results cannot be stored: {}", objection);
  std::vector<int> ordinals;  // of lanes; the first ones have a GPU each
  while (ordinals.size() < std::min(searches_at_a_time(a) * gpus.size(), problems.size()))
    ordinals.push_back(gpus[ordinals.size() % gpus.size()]);
  Display display(static_cast<int>(ordinals.size()), a.quiet);
  std::set<std::string, std::less<>> said;  // a GPU's second Device opens with the same warnings
  bool opening = true;
  std::vector<Device> devices;
  for (const int ordinal : ordinals) {
    devices.push_back(open_gpu(
        ordinal, a.cache,
        [&](std::string_view text) {
          if (!opening || said.emplace(text).second) display.message(text);
        },
        "configs are compiled and ranked for one that is not here: attnforge tune --arch sm_86 "
        "..."));
  }
  opening = false;
  std::vector<TuneJob> jobs(problems.size());  // each written by the thread that took it
  for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].problem = problems[i];
  Lanes lanes(problems, ordinals.size());
  std::atomic<bool> announced{false};
  std::vector<std::shared_mutex> memory(gpus.size());  // a large problem has it alone
  TuneOptions options = a.options;
  options.rigor = parse_rigor(a.rigor);
  if (options.compile_threads == 0 && gpus.size() > 1)
    options.compile_threads = static_cast<int>(
        std::max<std::size_t>(1, std::thread::hardware_concurrency() / gpus.size()));
  options.cancelled = [&] {
    if (!interrupted()) return false;
    if (!announced.exchange(true))
      display.message("attnforge: stopping; what is done is kept. Ctrl-C again ends at once");
    return true;
  };
  const auto tune_one = [&](std::size_t lane, TuneJob& job) {
    TuneOptions own = options;
    own.on_progress = [&](const Progress& progress) {
      display.update(static_cast<int>(lane), progress);
    };
    try {
      require_gpu_memory(job.problem, job.device);
      std::shared_lock beside(memory[lane % gpus.size()], std::defer_lock);
      std::unique_lock alone(*beside.mutex(), std::defer_lock);
      if (is_large(job.problem, job.device)) {
        alone.lock();
      } else {
        beside.lock();
      }
      if (!interrupted()) job.result = tune(job.problem, devices[lane], own);
    } catch (const std::exception&) {
      note_failure(job.error, job.code, "use a smaller problem or fewer --compile-threads");
    }
  };
  const auto work = [&](std::size_t lane) {
    Device& device = devices[lane];
    const int row = static_cast<int>(lane);
    for (auto index = lanes.next(lane); index && !interrupted(); index = lanes.next(lane)) {
      TuneJob& job = jobs[*index];
      job.device = device.facts();
      const std::string gpu = a.gpu == "all" ? fmt::format("GPU {} ", job.device.ordinal) : "";
      const std::string place = jobs.size() > 1 ? fmt::format("{}/{} ", *index + 1, jobs.size())
                                                : "";
      display.begin(row, gpu + place + to_string(job.problem));
      tune_one(lane, job);
      display.end(row);
      if (!job.result && job.error.empty()) break;  // not begun: Ctrl-C came while it waited
      // The error of a problem that is alone goes to standard error, as that of any other verb.
      if (!a.json && (jobs.size() > 1 || job.error.empty()))
        display.result(report(job, a.top, a.full) + "\n");
      // Where the GPU is lost, the other GPUs go on.
      if (job.code == kCuda && !gpu_works(device)) break;
    }
    lanes.leave(lane);
  };
  std::vector<std::jthread> threads;  // joined on every way out
  for (std::size_t lane = 1; lane < devices.size(); ++lane) threads.emplace_back(work, lane);
  work(0);
  threads.clear();
  return jobs;
}

int exit_code_of(const std::vector<TuneJob>& jobs, bool was_interrupted) {
  if (was_interrupted) return kExitInterrupted;
  for (const TuneJob& job : jobs) {
    if (!job.error.empty()) return exit_code(job.code);
    if (!job.result || job.result->winner.empty() || !job.result->not_kept.empty())
      return kExitFailed;
  }
  return kExitOk;
}

/// The landscape of each problem that was tuned.
std::vector<Picture> landscapes_of(const TuneArguments& arguments,
                                   const std::vector<TuneJob>& jobs) {
  std::vector<Search> searches(jobs.size());
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    const TuneJob& job = jobs[i];
    if (!job.result || job.result->winner.empty()) continue;
    searches[i] = {to_string(job.result->problem), job.result->trials,
                   fmt::format("{}, {}", job.device.name, utc_now().substr(0, 10))};
  }
  return landscape_pictures(searches, arguments.axes);
}

int tune_on_gpus(const TuneArguments& arguments, const std::vector<Problem>& problems) {
  std::vector<int> ordinals = gpu_ordinals(arguments.gpu);
  if (ordinals.size() > problems.size()) ordinals.resize(problems.size());
  const InterruptScope scope;
  const std::vector<TuneJob> jobs = tuned(arguments, problems, ordinals);
  const bool stopped = interrupted();
  if (arguments.json) {
    print_json(to_json(jobs, arguments.top, stopped));
  } else if (problems.size() > 1) {
    write_out(summary(jobs));
  }
  std::fflush(stdout);
  if (!arguments.plot.empty())
    draw_results([&] { return landscapes_of(arguments, jobs); }, arguments.plot);
  const bool failed_alone = problems.size() == 1 && !jobs[0].error.empty();
  if (failed_alone) throw Error(jobs[0].code, jobs[0].error);
  return exit_code_of(jobs, stopped);
}

int rank_for_archs(const TuneArguments& arguments, const std::vector<Problem>& problems) {
  const InterruptScope scope;
  Json results = Json::array();
  for (const std::string& arch : names_of(arguments.archs)) {
    const DeviceFacts& device = typical_device(arch);
    for (const Problem& problem : problems) {
      if (interrupted()) break;
      std::vector<RankedCandidate> ranked;
      {
        Display display(1, arguments.quiet);
        display.begin(0, fmt::format("sm_{} {}", device.arch.name, to_string(problem)));
        ranked = rank_untuned(
            problem, device, arguments.candidates, arguments.cache,
            [&](const Progress& progress) { display.update(0, progress); }, interrupted);
      }
      Json rows = Json::array();
      Table table = table_of(
          {">estimate us", ">registers", ">spills B", ">smem B", ">occupancy", "config"});
      for (const RankedCandidate& candidate : ranked) {
        const CompileInfo& c = candidate.compiled;
        rows.push_back({{"config", candidate.config},
                        {"estimate_us", candidate.estimate_us},
                        {"compiled", to_json(c)}});
        table.rows.push_back({fmt::format("{:.2f}", candidate.estimate_us),
                              c.ok ? std::to_string(c.registers) : "failed",
                              std::to_string(c.spill_bytes), std::to_string(c.smem_bytes),
                              fmt::format("{:.0f}%", 100 * c.occupancy),
                              config_text(candidate.config, arguments.full)});
      }
      results.push_back(
          {{"problem", to_string(problem)}, {"device", to_json(device)}, {"ranked", rows}});
      if (!arguments.json && !ranked.empty()) {
        write_out(fmt::format("{}\n  estimates for {}, best first; nothing was measured\n{}\n",
                              bold(to_string(problem)), describe(device), aligned(table, "  ")));
      }
    }
  }
  const bool stopped = interrupted();
  if (stopped) say("attnforge: interrupted; what was compiled is kept");
  if (arguments.json)
    print_json({{"attnforge", kVersion}, {"interrupted", stopped}, {"results", results}});
  return stopped ? kExitInterrupted : kExitOk;
}

/// "I/N" of --shard auto, and a GPU for each process of a machine.
void ask_launcher(TuneArguments& a) {
  const std::optional<JobRank> job = job_rank(secure_getenv);
  if (!job)
    refuse(
        kInvalidArgument,
        "--shard auto: no launcher says which process this is (torchrun, OpenMPI, MPICH, srun or "
        "a Slurm array); say --shard I/N");
  a.shard = fmt::format("{}/{}", job->rank, job->world);
  const std::size_t gpus = a.gpu.empty() ? enumerate_devices().size() : 0;
  if (gpus > 0) a.gpu = std::to_string(static_cast<std::size_t>(job->local) % gpus);
}

/// What a process of the job needs to know for each problem.
int tune_by_mpi(const TuneArguments& a) {
  JobTask task{
      .problems = read_problems({}, a.mpi, "tune"),
      .options = {"--rigor", a.rigor, "--time-limit", fmt::format("{}", a.options.time_limit_s),
                  "--top", std::to_string(a.top), "--seed", std::to_string(a.options.seed)},
      .compile_threads = a.options.compile_threads,
      .cache = a.cache,
      .json = a.json};
  if (a.options.retune) task.options.emplace_back("--retune");
  if (!a.options.family.empty())
    task.options.insert(task.options.end(), {"--family", a.options.family});
  return tune_in_job(task);
}

int run_tune(TuneArguments arguments) {
  if (!arguments.mpi.empty()) return tune_by_mpi(arguments);
  if (arguments.shard == "auto") ask_launcher(arguments);
  if (arguments.gpu.empty()) arguments.gpu = "0";
  const std::vector<Problem> all = read_problems(arguments.words, arguments.file, "tune");
  const std::vector<Problem> problems = problems_of_shard(all, arguments.shard);
  if (problems.empty()) {
    say(fmt::format("attnforge: shard {} has none of {}: nothing to tune", arguments.shard,
                    counted(std::ssize(all), "problem", "problems")));
    if (arguments.json) print_json(to_json({}, 0, false));
    return kExitOk;
  }
  return arguments.archs.empty() ? tune_on_gpus(arguments, problems)
                                 : rank_for_archs(arguments, problems);
}

}  // namespace

Verb add_tune(Command& program) {
  auto arguments = std::make_shared<TuneArguments>();
  Command& verb = *program.add_subcommand(
      "tune", "Find the fastest kernel for a problem and keep it in the database");
  TuneArguments& a = *arguments;
  add_value(verb, "problem WORD ...", a.words, "The problem's words");
  add_value(verb, "--file PATH", a.file,
            "A problem a line, # begins a comment; - is standard input");
  add_value(
      verb, "--shard I/N|auto", a.shard,
      "Every N-th problem from the I-th on: the share of one process of N; auto: as torchrun, "
      "OpenMPI, MPICH or Slurm says, each with a GPU of its machine. A database belongs to "
      "one machine");
  auto* mpi = add_value(verb, "--mpi PATH", a.mpi,
                        "The problems of a file, by all processes of an MPI job, a GPU each: "
                        "handed out one by one, merged into the database of the first");
  add_value(verb, "--gpu N|all", a.gpu,
            "CUDA number of the GPU, default 0, or all (problems are shared out). Without a time "
            "limit two of several problems are in work on each: one compiles while kernels of the "
            "other run");
  verb.add_option("--rigor", a.rigor,
                  "quick: the model's best few; full: until converged; exhaustive: every config")
      ->check(one_of({"quick", "full", "exhaustive"}));
  add_value(verb, "--time-limit SECONDS", a.options.time_limit_s, "For each problem; 0: none")
      ->transform(seconds());
  verb.add_flag("--retune", a.options.retune, "Measure again what the database already has");
  add_value(verb, "--family NAME", a.options.family,
            "Only this kernel family (see attnforge list)");
  add_number(verb, "--top N", a.top, "Also show the best N tries");
  auto* plot = add_value(verb, "--plot FOLDER", a.plot,
                         "Draw the landscape of each problem in this folder (gnuplot)");
  add_value(verb, "--axes X,Y", a.axes,
            "With --plot: the two fields of configs, e.g. block_n,stages")
      ->needs(plot);
  add_number(verb, "--seed N", a.options.seed, "Of the inputs and the order of measurements");
  add_number(verb, "--compile-threads N", a.options.compile_threads,
             "Of each search; 0: one a core of a GPU's share", 0, 1024);
  auto* arch = add_value(
                   verb, "--arch ARCHS", a.archs,
                   "Compile and rank by the model for GPUs that are not here, e.g. sm_86,sm_90a")
                   ->check(names());
  add_number(verb, "--candidates N", a.candidates, "With --arch: how many to compile", 1)
      ->needs(arch);
  // Nothing is measured then; what would be ignored is refused.
  for (const char* option : {"--gpu", "--rigor", "--time-limit", "--retune", "--family", "--top",
                             "--plot", "--seed", "--compile-threads"})
    arch->excludes(verb.get_option(option));
  for (const char* option : {"problem", "--file", "--shard", "--gpu", "--plot", "--arch"})
    mpi->excludes(verb.get_option(option));
  add_cache_option(verb, a.cache);
  verb.add_flag("--full", a.full, kFullHelp);
  verb.add_flag("--json", a.json, "Results as JSON");
  verb.add_flag("-q,--quiet", a.quiet, "No progress");
  verb.footer(kTuneFooter);
  return [arguments] { return run_tune(*arguments); };
}

}  // namespace attnforge::cli
