// run.cpp - attnforge run: one problem on tensors from .npy files or random ones, timed and, if
// wanted, checked.
#include <algorithm>
#include <chrono>

#include "attnforge/check.h"
#include "attnforge/device_memory.h"
#include "attnforge/measure.h"
#include "cli/options/gpus.h"
#include "cli/output/bench_rows.h"
#include "cli/output/table.h"
#include "cli/parts/part.h"
#include "cli/parts/tensors.h"
#include "cli/verbs/memory_check.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct RunArguments {
  std::vector<std::string> words;
  std::string q, k, v, o, lse, cache;
  PlanOptions plan{};
  int gpu = 0;
  std::uint64_t seed = 0;
  bool random = false, bf16 = false, o_fp32 = false, check = false, check_all = false, json = false;
  bool cpu = false, full = false;
  int repeat = 10;
  SequenceArguments sequences;
  RunParts parts = run_parts();

  RunFlags flags() const {
    return {.uint16_is_bf16 = bf16, .random = random, .check = check || check_all, .on_gpu = !cpu};
  }
};

constexpr const char* kFilesHelp =
    R"(Files hold [batch, seqlen, num_heads, head_dim], or [batch, num_heads, seqlen, head_dim] with the word layout=bhsd.
float16 is fp16, float32 is fp32 or rounded to the dtype that is asked for, bfloat16 of ml_dtypes is bf16, and so is
uint16 with --bf16.
)";
constexpr const char* kRestHelp =
    R"(--check compares with attention, or its gradients, in fp64 on the CPU; of large problems it takes a sample of the rows.

Examples:
  attnforge run --q q.npy --k k.npy --v v.npy --o o.npy causal --check
  attnforge run --q q.npy --k k.npy --v v.npy --o o.npy --lse lse.npy bf16 layout=bhsd window_left=1023
  attnforge run --random 1 --check fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128 causal
)";

/// The problem and its inputs; o and lse are allocated.
struct Inputs {
  Problem problem;
  HostTensors host;
};

/// Before anything is allocated.
void check_parts(const RunArguments& a, const Problem& problem) {
  if (!a.o.empty() && problem.op == Op::kAppend && !problem.queries)
    refuse(kInvalidArgument,
           "--o: an append writes its queries alone, rotated; add the words queries and rope=half, "
           "or leave --o out");
  if (!a.o.empty() && a.o == a.lse)
    refuse(kInvalidArgument, "--o and --lse are one file, {}: name another for one of them", a.o);
  for (const auto& part : a.parts) part->check(problem, a.flags());
  require_host_memory(problem);
  if (a.cpu || a.check_all) require_reference_memory(problem);
}

Inputs inputs_from_files(const RunArguments& a) {
  std::vector<std::string> words = words_of(a.words);
  const auto has = [&](const char* word) { return std::ranges::count(words, word) != 0; };
  for (const char* op : {"append", "merge"}) {
    if (has(op))
      refuse(kInvalidArgument, "{} takes no files of q, k and v; give --random SEED instead", op);
  }
  for (const auto& [option, path] : {std::pair("--q", &a.q), {"--k", &a.k}, {"--v", &a.v}}) {
    if (path->empty())
      refuse(kInvalidArgument,
             "{} is missing; give --q, --k and --v, or --random SEED and a problem", option);
  }
  if (!a.lse.empty() && !has("bwd") && !has("lse")) words.push_back("lse");
  NpyArray q = read_npy(a.q), k = read_npy(a.k), v = read_npy(a.v);
  const InputHeaders headers{{a.q, q.header}, {a.k, k.header}, {a.v, v.header}, a.bf16};
  const SequenceFiles sequences = read_sequence_files(a.sequences);
  Inputs inputs{problem_of_files(headers, words, sequences, reader_of(a.parts, a.seed)), {}};
  const Problem& p = inputs.problem;
  check_parts(a, p);
  inputs.host = allocate_host_tensors(p);
  const auto values = [&](NpyArray& file, const std::string& path, DType wanted) {
    const DType bytes = npy_dtype(file.header, a.bf16, path);
    const DType dtype = is_blocks(wanted) ? wanted : bytes;  // which problem_of_files() found
    return converted(std::move(file), dtype, wanted);
  };
  inputs.host.q = values(q, a.q, p.dtype_q);
  inputs.host.k = values(k, a.k, p.dtype_k);
  take_sequences(sequences, p, a.random, inputs.host);
  inputs.host.v = values(v, a.v, p.dtype_v);
  return inputs;
}

Inputs random_inputs(const RunArguments& a) {
  if (!a.q.empty() || !a.k.empty() || !a.v.empty())
    refuse(kInvalidArgument, "--random and files for q, k, v exclude each other");
  Problem problem = read_problem(a.words, "run --random 1", reader_of(a.parts, a.seed));
  if (!a.lse.empty() && !is_backward(problem)) problem.lse = true;
  check_parts(a, problem);
  Inputs inputs{problem, random_host_tensors(problem, a.seed)};
  take_sequences(read_sequence_files(a.sequences), problem, a.random, inputs.host);
  return inputs;
}

void write_outputs(const RunArguments& a, const Problem& problem, const HostTensors& host) {
  for (const auto& part : a.parts) part->write(problem, a.flags(), host);
  if (!a.o.empty()) {
    const DType dtype = a.o_fp32 ? DType::kFp32 : problem.dtype_o;
    write_npy(a.o, npy_descr(dtype, a.bf16), output_shape(problem),
              converted({{}, host.o}, problem.dtype_o, dtype));
  }
  if (!a.lse.empty())
    write_npy(a.lse, "<f4", lse_shape(problem), std::as_bytes(std::span(host.lse)));
}

/// Uploads the inputs, runs the plan and downloads what it computes.
DeviceTensors computed(const Plan& plan, Device& device, HostTensors& host) {
  DeviceTensors on_gpu = upload_tensors(device, plan, host);
  plan.run(on_gpu.tensors, on_gpu.workspace.data());
  download_outputs(on_gpu, plan.problem(), host);
  return on_gpu;
}

Json element_json(const CheckedElement& e) {
  return ATTNFORGE_JSON(e, batch, head, row, dim, got, expected, allowed);
}

void add_check(Json& json, const CheckReport& c, bool lse) {
  Json& check = json["check"] = ATTNFORGE_JSON(c, ok, rows_checked, rows_total, wrong,
                                               nonfinite_wrong, max_error, tensor,
                                               cosine_similarity);
  check["worst"] = element_json(c.worst);
  if (!lse) return;
  check["max_lse_error"] = c.max_lse_error;
  check["worst_lse"] = element_json(c.worst_lse);
}

void print_element(std::string_view tensor, const CheckedElement& e) {
  write_out(fmt::format(
      "  worst of {:<4} batch={} head={} row={} dim={}: {:.7g}, expected {:.7g}, allowed error "
      "{:.3g}\n",
      tensor, e.batch, e.head, e.row, e.dim, e.got, e.expected, e.allowed));
}

void print_check(const CheckReport& c, bool lse) {
  write_out(fmt::format("check         {}\n",
                        c.ok ? green("ok") : red(fmt::format("WRONG: {} elements", c.wrong))));
  if (c.rows_total == 0) return;
  write_out(fmt::format("  rows        {} of {}{}\n", c.rows_checked, c.rows_total,
                        c.sampled() ? ", a sample; --check-all takes all" : ""));
  write_out(fmt::format("  max error   {:.4g}\n", c.max_error));
  if (lse) write_out(fmt::format("  lse error   {:.4g}\n", c.max_lse_error));
  if (c.nonfinite_wrong > 0)
    write_out(
        fmt::format("  NaN or infinite where it should not be: {} elements\n", c.nonfinite_wrong));
  write_out(fmt::format("  cosine      {:.9f}\n", c.cosine_similarity));
  print_element(c.tensor, c.worst);
  if (lse) print_element("lse", c.worst_lse);
}

/// What a run says, but for what files and the check say.
struct RunReport {
  Json json{};
  std::string text{};
};

/// Without NVRTC a plan from the database runs all the same, but nothing can time it.
RunReport timed(const RunArguments& a, const Plan& plan, Device& device, const HostTensors& host,
                const DeviceTensors& on_gpu) {
  RunReport report{{{"attnforge", kVersion},
                    {"problem", to_string(plan.problem())},
                    {"device", to_json(device.facts())},
                    {"config", plan.config()},
                    {"provenance", to_string(plan.provenance())},
                    {"layer", to_string(plan.layer())},
                    {"time", nullptr}}};
  report.text = fmt::format(
      "GPU           {}\nconfig        {}\nprovenance    {}\nfound in      {}\n",
      describe(device.facts()), printable(config_text(plan.config(), a.full)),
      to_string(plan.provenance()), to_string(plan.layer()));
  try {
    BenchResult time = measure(plan, device, on_gpu.tensors, on_gpu.workspace.data(),
                               {.min_samples = a.repeat, .max_samples = a.repeat});
    const Work work = work_of(plan.problem(), host);
    time.tflops_per_s = work.tflops_per_s(time.time_us);
    time.work_unknown = work.unknown;
    report.json["time"] = time_json(time);
    report.text += fmt::format(
        "time          {:.2f} us, {}{:.1f} GB/s\n{}              (median of {}, cold L2, noise "
        "{:.1f}%)\n",
        time.time_us, work.is_known() ? fmt::format("{:.1f} TFLOP/s, ", time.tflops_per_s) : "",
        time.gbytes_per_s,
        work.is_known() ? ""
                        : fmt::format("              (no TFLOP/s: {})\n", printable(work.unknown)),
        time.samples, 100 * time.noise);
  } catch (const Error& error) {
    if (error.code() != kNoDriver) throw;
    report.json["not_timed"] = error.what();
    report.text += fmt::format("time          not measured: {}\n", printable(error.what()));
  }
  return report;
}

/// Prints the report, checks the outputs if that is wanted, and returns the exit code.
int finish(const RunArguments& a, const Inputs& inputs, RunReport report) {
  const auto& [problem, host] = inputs;
  if (!a.json) {
    write_out(fmt::format("problem       {}\n", to_string(problem)));
    for (const auto& part : a.parts) write_out(part->report(problem, host));
    write_out(report.text);
    if (!a.o.empty()) write_out(fmt::format("o             {}\n", printable(a.o)));
    if (!a.lse.empty()) write_out(fmt::format("lse           {}\n", printable(a.lse)));
    std::fflush(stdout);  // the check may take a while
  }
  CheckReport check;
  if (a.check || a.check_all) {
    CheckOptions options;
    options.seed = a.seed;
    if (a.check_all) options.max_work = 0;
    check = check_output(problem, host, options);
    if (!a.json) print_check(check, problem.lse);
    add_check(report.json, check, problem.lse);
  }
  if (a.json) print_json(report.json);
  return check.ok ? kExitOk : kExitCheckFailed;
}

/// The reference in place of a GPU.
int run_on_cpu(const RunArguments& a, Inputs& inputs) {
  const auto begin = std::chrono::steady_clock::now();
  if (is_backward(inputs.problem)) solve_on_cpu(forward_of(inputs.problem), inputs.host);
  solve_on_cpu(inputs.problem, inputs.host);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
  write_outputs(a, inputs.problem, inputs.host);
  return finish(a, inputs,
                {{{"attnforge", kVersion},
                  {"problem", to_string(inputs.problem)},
                  {"device", "cpu"},
                  {"elapsed_s", elapsed.count()}},
                 fmt::format("computed      on the CPU in fp64 in {:.2f} s\n", elapsed.count())});
}

/// Tuning may take a while: Ctrl-C ends it and keeps what was measured. nullopt: it did.
std::optional<Plan> plan_unless_interrupted(const Problem& problem, Device& device,
                                            PlanOptions options) {
  if (options.policy != Policy::kFirstRun) return make_plan(problem, device, options);
  const InterruptScope scope;
  options.cancelled = interrupted;
  Plan plan = make_plan(problem, device, options);
  if (!interrupted()) return plan;
  say("attnforge: interrupted; what was measured is kept");
  return std::nullopt;
}

int run_run(const RunArguments& a) {
  if (!a.random && a.words.empty() && a.q.empty() && a.k.empty() && a.v.empty()) {
    refuse(kInvalidArgument,
           "nothing to run; give --q, --k and --v, or --random SEED and a problem");
  }
  Inputs inputs = a.random ? random_inputs(a) : inputs_from_files(a);
  for (const auto& part : a.parts) part->take(inputs.problem, a.flags(), inputs.host);
  if (a.cpu) return run_on_cpu(a, inputs);

  Device device = open_gpu(a.gpu, a.cache, say, "the reference computes it: attnforge run --cpu");
  require_gpu_memory(inputs.problem, device.facts());
  for (const auto& part : a.parts) part->find(device, inputs.problem, inputs.host);
  // o and lse of the inputs, by a forward plan: gradients of made-up ones would mean nothing.
  if (is_backward(inputs.problem))
    computed(make_plan(forward_of(inputs.problem), device, {.policy = Policy::kEstimate}), device,
             inputs.host);
  const std::optional<Plan> plan = plan_unless_interrupted(inputs.problem, device, a.plan);
  if (!plan) return kExitInterrupted;
  const DeviceTensors on_gpu = computed(*plan, device, inputs.host);
  write_outputs(a, inputs.problem, inputs.host);
  return finish(a, inputs, timed(a, *plan, device, inputs.host, on_gpu));
}

}  // namespace

Verb add_run(Command& program) {
  auto arguments = std::make_shared<RunArguments>();
  RunArguments& a = *arguments;
  Command& verb = *program.add_subcommand("run", "Run one problem on .npy files or random tensors");
  add_value(verb, "problem WORD ...", a.words,
            "The problem's words; with files, only what they do not say");
  add_value(verb, "--q NPY", a.q, "Queries");
  add_value(verb, "--k NPY", a.k, "Keys");
  add_value(verb, "--v NPY", a.v, "Values");
  add_value(verb, "--o NPY", a.o, "Where the output goes");
  add_sequence_options(verb, a.sequences);
  for (const auto& part : a.parts) {
    part->add_table_options(verb);
    part->add_problem_options(verb);
  }
  add_value(verb, "--lse NPY", a.lse,
            "Where the log-sum-exp goes: float32 [batch, num_heads_q, seqlen_q]");
  for (const auto& part : a.parts) part->add_options(verb);
  auto* random = add_number(verb, "--random SEED", a.seed, "Random tensors instead of files");
  verb.add_flag("--bf16", a.bf16, "uint16 files hold the bits of bf16, for o too");
  verb.add_flag("--o-fp32", a.o_fp32, "Write o as float32");
  verb.add_flag("--check", a.check, "Compare with the reference; exit code 4 if it is wrong");
  verb.add_flag("--check-all", a.check_all, "The same on all rows, however long it takes");
  add_number(verb, "--repeat N", a.repeat, "Timed runs", 1, kMostSamples);
  auto* gpu = add_number(verb, "--gpu N", a.gpu, "CUDA number of the GPU");
  auto* cpu = verb.add_flag("--cpu", a.cpu,
                            "Compute the reference on the CPU in fp64 instead; no GPU needed")
                  ->excludes(gpu);
  add_plan_options(verb, a.plan);
  // No kernel runs; what would be ignored is refused.
  for (const char* option : {"--repeat", "--policy", "--time-limit", "--family", "--config"})
    cpu->excludes(verb.get_option(option));
  add_cache_option(verb, a.cache);
  verb.add_flag("--full", a.full, kFullHelp);
  verb.add_flag("--json", a.json, "As JSON");
  std::string footer = std::string(kFilesHelp) + kSequenceHelp;
  for (const auto& part : a.parts) footer += part->help();
  footer += kRestHelp + examples_of(a.parts, "run");
  footer.pop_back();  // the end of its last line
  verb.footer(footer);
  return [arguments, random] {
    arguments->random = random->count() > 0;
    return run_run(*arguments);
  };
}

}  // namespace attnforge::cli
