// inspect.cpp - attnforge inspect: what a problem becomes, hop by hop, for a GPU that is here or
// not.
#include <fmt/ranges.h>

#include <algorithm>

#include "cli/files/text_files.h"
#include "cli/options/gpus.h"
#include "cli/output/inspect_report.h"
#include "cli/output/table.h"
#include "cli/page/inspect.h"
#include "cli/parts/part.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct InspectArguments {
  std::vector<std::string> words;
  std::string arch, gpu, html, sections;
  InspectOptions options{};
  InspectView view{};
  bool source = false, entry = false, json = false, no_compile = false;
  RunParts parts = run_parts();
};

std::string footer_of(const RunParts& parts) {
  return R"(Works without a GPU with --arch, and without NVRTC but for what the compiler says.

Examples:
  attnforge inspect --arch sm_86 fwd fp16 seqlen=1024 head_dim=64 causal
  attnforge inspect --section candidates,cuts --full fwd bf16 num_heads=32:8 seqlen=4096 head_dim=128
)" + examples_of(parts, "inspect") +
         R"(  attnforge inspect --html kernel.html --arch sm_90a fwd bf16 seqlen=4096 head_dim=128 causal
  attnforge inspect --source --arch sm_86 fwd bf16 seqlen=4096 head_dim=128 > kernel.cu
  nvcc -std=c++20 -arch=sm_86 -c kernel.cu                    (the first line of the file is this command)
  attnforge inspect --json --arch sm_89 fwd bf16 seqlen=4096 head_dim=128)";
}

DeviceFacts device_of(const InspectArguments& arguments) {
  if (!arguments.arch.empty()) return typical_device(arguments.arch);
  const std::vector<int> ordinals = gpu_ordinals(arguments.gpu.empty() ? "0" : arguments.gpu);
  const std::vector<DeviceFacts> devices = enumerate_devices();
  for (const DeviceFacts& device : devices) {
    if (device.ordinal == ordinals.front()) return device;
  }
  if (!arguments.gpu.empty() && !devices.empty()) {
    refuse(kInvalidArgument, "there is no GPU {}; this machine has {} (see attnforge list devices)",
           arguments.gpu, devices.size());
  }
  refuse(kNoDriver, "there is no GPU here; say which one is meant with --arch, one of sm_{}",
         fmt::join(known_archs(), ", sm_"));
}

/// Compiles if it can. Where NVRTC is missing or too old, everything else is still worth seeing.
Inspection inspect_what_can_be(const Problem& problem, const DeviceFacts& device,
                               InspectOptions options) {
  std::string not_compiled;
  try {
    return inspect(problem, device, options);
  } catch (const Error& error) {
    const bool insisted = (options.ptx || options.sass) && !options.line_info;
    if (error.code() != ErrorCode::kNoDriver || !options.compile || insisted) throw;
    not_compiled = error.what();
  }
  options.compile = options.ptx = options.sass = false;
  Inspection inspection = inspect(problem, device, options);
  inspection.not_compiled = not_compiled;
  return inspection;
}

/// --cuts alone asks for the section that it is about.
InspectView view_of(const InspectArguments& a) {
  InspectView view = a.view;
  view.sections = names_of(a.sections);
  if (view.cuts && view.sections.empty()) view.sections = {"cuts"};
  const std::vector<std::string>& known = section_names();
  for (const std::string& name : view.sections) {
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      refuse(kInvalidArgument, "--section {} must be of {}", name, fmt::join(known, ", "));
    }
  }
  return view;
}

void print_raw(const std::string& text) {
  fmt::print("{}{}", text, text.empty() || text.back() == '\n' ? "" : "\n");
}

int run_inspect(const InspectArguments& a) {
  const Problem problem = read_problem(a.words, "inspect", reader_of(a.parts));
  const Drawing drawing = drawing_of(a.parts, problem);
  const bool source_only = a.source || a.entry;
  InspectOptions options = a.options;
  options.compile = !a.no_compile && !source_only;
  options.cut_candidates = a.view.cuts;
  options.work = work_of(a.parts, problem);
  if (!a.html.empty()) options = page_options(options);
  const InspectView view = view_of(a);
  const Inspection inspection = inspect_what_can_be(problem, device_of(a), options);

  if (!a.html.empty()) {
    write_text(a.html, inspect_page(inspection, drawing, utc_now()));
    if (a.html != "-") write_out(fmt::format("{}\n", printable(a.html)));
  } else if (a.json) {
    Json json = to_json(inspection, view);
    add_drawing(json, drawing, inspection.tiles);
    print_json(json);
  } else if (source_only) {
    print_raw(a.source ? inspection.source : inspection.source_entry);
  } else if (options.ptx) {
    if (!inspection.compiled.ok) throw Error(ErrorCode::kCompile, inspection.compiled.log);
    print_raw(inspection.ptx);
  } else if (options.sass) {
    if (inspection.sass.starts_with("none: "))
      throw Error(ErrorCode::kIo, "no SASS, " + inspection.sass.substr(6));
    print_raw(inspection.sass);
  } else {
    write_out(
        fmt::format("{}{}", report(inspection, view), drawing_text(drawing, inspection.tiles)));
  }
  const bool compiled = inspection.not_compiled.empty();
  return compiled && !inspection.compiled.ok ? kExitFailed : kExitOk;
}

}  // namespace

Verb add_inspect(Command& program) {
  auto arguments = std::make_shared<InspectArguments>();
  Command& verb = *program.add_subcommand(
      "inspect", "Show what a problem becomes: candidates, config, source, code, launch");
  InspectArguments& a = *arguments;
  add_value(verb, "problem WORD ...", a.words, "The problem's words");
  auto* gpu = add_value(verb, "--gpu N", a.gpu, "CUDA number of the GPU; default 0");
  add_value(verb, "--arch ARCH", a.arch,
            "A typical GPU of this arch instead, e.g. sm_86; it need not be here")
      ->excludes(gpu);
  add_value(verb, "--config TEXT", a.options.config,
            "This config instead of the one that a plan would use");
  add_value(verb, "--family NAME", a.options.family,
            "Only this kernel family (see attnforge list)");
  for (const auto& part : a.parts) {
    part->add_table_options(verb);
    part->add_problem_options(verb);
  }
  add_number(verb, "--candidates N", a.view.candidates, "How many candidates to list; 0: all");
  add_value(verb, "--section NAMES", a.sections,
            fmt::format("In full, some of {}", fmt::join(section_names(), ", ")))
      ->check(names());
  verb.add_flag("--cuts", a.view.cuts, "List the configs that were cut, each with its reason");
  verb.add_flag("--full", a.view.full, kFullHelp);
  auto* no_compile = verb.add_flag("--no-compile", a.no_compile, "Leave the compiler out");
  auto* source = verb.add_flag("--source", a.source, "Print only the self-contained .cu");
  auto* entry = verb.add_flag("--entry", a.entry, "Print only the generated lines of it");
  auto* ptx = verb.add_flag("--ptx", a.options.ptx, "Print only the PTX");
  auto* sass = verb.add_flag("--sass", a.options.sass,
                             "Print only the SASS (needs nvdisasm or cuobjdump on PATH)");
  source->excludes(entry)->excludes(ptx)->excludes(sass);
  entry->excludes(ptx)->excludes(sass);
  ptx->excludes(sass);
  no_compile->excludes(ptx)->excludes(sass);
  auto* html = add_value(verb, "--html FILE", a.html,
                         "Write all of it as a page of HTML that needs nothing else");
  for (Option* raw : {source, entry, ptx, sass}) html->excludes(raw);
  add_cache_option(verb, a.options.cache_path);
  verb.add_flag("--json", a.json, "Everything as JSON (with --ptx or --sass: those too)")
      ->excludes(html);
  verb.footer(footer_of(a.parts));
  return [arguments] { return run_inspect(*arguments); };
}

}  // namespace attnforge::cli
