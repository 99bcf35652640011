// inspect.cpp - what a problem becomes, hop by hop, through the same functions that a plan uses.
#include "attnforge/inspect.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "plan/checks/option_checks.h"
#include "plan/choice/choice.h"
#include "plan/overrides.h"
#include "plan/tools/compile_info.h"
#include "runtime/compile/compiler.h"
#include "runtime/compile/disassemble.h"
#include "templates/registry.h"

namespace attnforge {
namespace {

CandidateInfo describe(const CutCandidate& cut) { return {to_string(cut.config), 0, cut.reason}; }

void list_candidates(Inspection& inspection, const ChoiceKey& key, const Overrides& overrides,
                     const InspectOptions& options) {
  const std::size_t most = options.max_candidates > 0
                               ? static_cast<std::size_t>(options.max_candidates)
                               : std::numeric_limits<std::size_t>::max();
  LeftOut left_out;
  left_out.cuts.most = options.cut_candidates ? most : 0;
  const std::vector<Candidate> kept = candidates(families_named(key.family, overrides), key.problem,
                                                 inspection.device, overrides, &left_out);
  for (const auto& [family, reason] : left_out.families)
    inspection.rejected_families.push_back(fmt::format("{}: {}", family->name, reason));
  for (const Candidate& each : std::span(kept).first(std::min(most, kept.size())))
    inspection.candidates.push_back({to_string(each.config), each.estimate_us, ""});
  const std::vector<CutCandidate>& cut = left_out.cuts.configs;
  const std::size_t left = most - inspection.candidates.size();
  for (const CutCandidate& each : std::span(cut).first(std::min(left, cut.size())))
    inspection.candidates.push_back(describe(each));
  inspection.num_candidates = static_cast<int>(kept.size());
  inspection.num_cut = static_cast<int>(left_out.cuts.count);
  for (const auto& [words, kind] : left_out.cuts.kinds)
    inspection.cuts.push_back({static_cast<int>(kind.count), describe(kind.first)});
  std::ranges::stable_sort(inspection.cuts, std::greater(), &CutCount::count);
}

Choice choose(const ChoiceKey& key, const DeviceFacts& device, Cache& cache,
              const Overrides& overrides) {
  if (!key.config.empty()) return forced_choice(key.config, key.problem, device, overrides);
  const Logger silent;
  const char* const path = secure_getenv("ATTNFORGE_SITE_CACHE");
  std::optional<Cache> site;
  if (path != nullptr && *path != '\0') site.emplace(path, /*read_only=*/true);
  Chooser chooser(key, device, cache, site ? &*site : nullptr, overrides, silent);
  std::optional<Choice> stored = chooser.stored();
  if (!stored) stored = chooser.near();
  Choice choice = stored ? *std::move(stored) : chooser.untuned();
  if (!stored) choice.why = fmt::format("{}; {}", chooser.undecided(), choice.why);
  if (const std::string forced = forced_text(overrides); !forced.empty()) {
    choice.provenance = Provenance::kForced;
    choice.why = fmt::format("the environment forces it ({}); among the rest, {}", forced,
                             choice.why);
  }
  return choice;
}

void compile_source(Inspection& inspection, const Source& source, const Launch& launch,
                    const InspectOptions& options) {
  const Arch& arch = inspection.device.arch;
  Cubin cubin;
  try {
    cubin = compile(source, arch, {.line_info = options.line_info});
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kCompile) throw;
    inspection.compiled = {.ok = false, .log = error.what()};
    inspection.sass = "none: the source does not compile";
    return;
  }
  inspection.compiled = describe(cubin, source, launch, arch);
  if (!options.sass) return;
  const Disassembly disassembly = disassemble(cubin.bytes, {.line_info = options.line_info});
  inspection.sass = disassembly.problem.empty() ? disassembly.text : "none: " + disassembly.problem;
}

TileInfo tiles_of(const Choice& choice, const Problem& problem) {
  const TileShape tile = choice.family->tile_shape(choice.config, problem);
  TileInfo info{.block_m = tile.block_m, .block_n = tile.block_n};
  for (const FieldRule& field : choice.family->fields)
    if (field.name == "pack_gqa") info.pack_gqa = choice.config.get(field.name);
  return info;
}

/// What a step is to the config's own kernel.
std::string role_of(const LaunchStep& step, const Launch& launch, std::string_view family) {
  const LaunchStep& own = launch.steps[own_step(launch)];
  if (&step == &own) return "main";
  if (&step < &own) return "prepare";
  if (step.kernel.starts_with(family)) return "second";
  return step.kernel.starts_with("combine") ? "merge" : "finish";
}

void list_launches(Inspection& inspection, const Launch& launch, const Source& source,
                   const Family& family) {
  for (const LaunchStep& step : launch.steps) {
    LaunchInfo info{.kernel = symbol_of(step.kernel, source),
                    .role = role_of(step, launch, family.name),
                    .smem_bytes = step.smem_bytes,
                    .workspace_bytes = launch.workspace_bytes};
    const auto copy = [](const Dim3& from, int(&to)[3]) {
      to[0] = static_cast<int>(from.x);
      to[1] = static_cast<int>(from.y);
      to[2] = static_cast<int>(from.z);
    };
    copy(step.grid, info.grid);
    copy(step.block, info.block);
    info.own = info.role == "main";
    inspection.launches.push_back(std::move(info));
  }
}

/// What compiles the file. For an arch with a letter, -arch would also make PTX of the arch without
/// it, which has no wgmma.
std::string nvcc_command(const Arch& arch) {
  const bool letter = arch.name.find_first_not_of("0123456789") != arch.name.npos;
  const std::string target = letter
                                 ? fmt::format("-gencode arch=compute_{0},code=sm_{0}", arch.name)
                                 : fmt::format("-arch=sm_{}", arch.name);
  return fmt::format("nvcc -std=c++20 {} -c kernel.cu", target);
}

/// `source` as a file of its own. What comes before it is no part of what NVRTC compiles, or of the
/// digest.
std::string as_file(const Source& source, const Arch& arch) {
  const std::string command = nvcc_command(arch);
  return fmt::format(
      "// {0}\n"
      "#if __cplusplus <= 201703L\n"
      "#error \"this file needs C++20: {0}\"\n"
      "#endif\n"
      "{1}",
      command, source.text);
}

Reach reach_of(const Inspection& inspection, const Choice& choice, const Problem& stored_as,
               const Launch& launch) {
  const DeviceFacts& device = inspection.device;
  Reach reach;
  if (launch.steps.empty()) return reach;
  const Dim3& grid = launch.steps[own_step(launch)].grid;
  const double blocks = double{1} * grid.x * grid.y * grid.z;
  reach.busy_sms = static_cast<int>(std::min<double>(blocks, device.num_sms));
  for (const Trial& trial : inspection.measured) {
    if (trial.config != inspection.config || trial.measurement.status != Status::kOk) continue;
    reach.time_us = trial.measurement.time_us;
    reach.measured = true;
  }
  const Problem& timed = reach.measured ? stored_as : inspection.problem;
  if (!reach.measured) reach.time_us = choice.family->estimate_us(choice.config, timed, device);
  const double bytes_per_us = 2.0 * device.memory_clock_mhz * device.memory_bus_bits / 8;
  reach.work = reach.measured ? inspection.measured_work : inspection.work;
  reach.minimum_bytes = minimum_bytes(timed);
  if (bytes_per_us > 0) reach.memory_us = reach.minimum_bytes / bytes_per_us;
  return reach;
}

}  // namespace

std::string describe_config(const std::string& config) {
  try {
    return describe(parse_config(config));
  } catch (const Error&) {  // of another version, or made up: shown as it is
    return config;
  }
}

std::string digest_today(std::string_view problem, std::string_view config) {
  try {
    const Config read = parse_config(config);
    if (find_family(read.family) == nullptr) return "";
    return rendered(read, parse_problem(problem), {}).digest;
  } catch (const Error&) {
    return "";  // of another version, damaged, or stored under what the environment forced
  }
}

std::vector<FamilyInfo> list_families() {
  std::vector<FamilyInfo> list;
  for (const Family* family : registry()) {
    FamilyInfo info{.name = std::string(family->name),
                    .summary = std::string(family->summary),
                    .tier = std::string(to_string(family->tier)),
                    .archs = {},
                    .features = {}};
    for (const Arch& arch : archs()) {
      // Any problem of a usual kind will do: what a family needs of an arch does not depend on
      // sizes.
      for (const DType dtype : {DType::kBf16, DType::kFp32}) {
        const Problem usual{.op = family->op,
                            .dtype_q = dtype,
                            .dtype_k = dtype,
                            .dtype_v = dtype,
                            .dtype_o = dtype};
        if (!family->supports(usual, arch).empty()) continue;
        info.archs.push_back(fmt::format("sm_{}", arch.name));
        break;
      }
    }
    for (const std::string_view feature : feature_names(family->features))
      info.features.emplace_back(feature);
    list.push_back(std::move(info));
  }
  return list;
}

Inspection inspect(const Problem& problem, const DeviceFacts& whole_device,
                   const InspectOptions& options) {
  validate(problem);
  require_count("max_candidates", options.max_candidates, 0, std::numeric_limits<int>::max());
  const Overrides overrides = overrides_from_environment();
  const DeviceFacts device = limited(whole_device, overrides);
  Inspection inspection;
  inspection.problem = problem;
  inspection.work = options.work ? *options.work : work_of(problem);
  inspection.sees = seen_keys(problem);
  inspection.device = device;
  const ChoiceKey key{bucket(problem), options.family, options.config};
  list_candidates(inspection, key, overrides, options);

  Cache cache(options.cache_path, /*read_only=*/true);
  const Choice choice = choose(key, device, cache, overrides);
  inspection.config = to_string(choice.config);
  inspection.provenance = choice.provenance;
  inspection.layer = choice.layer;
  inspection.why = choice.why;
  inspection.slow_path = slow_path(problem, device, overrides);

  const Source source = render(*choice.family, choice.config, key.problem, overrides);
  inspection.source_entry = source.entry;
  inspection.source = as_file(source, device.arch);
  inspection.digest = digest(source);
  inspection.assembly = source.assembly;
  const Launch launch = choice.family->launch(choice.config, problem, device);
  list_launches(inspection, launch, source, *choice.family);
  inspection.tiles = tiles_of(choice, problem);
  inspection.measured_as = key.problem;
  Source compiled = source;
  if (options.line_info) compiled.text = inspection.source;  // lines are those that are shown
  if (options.compile || options.sass) {
    compile_source(inspection, compiled, launch, options);
  } else {
    inspection.not_compiled = "not asked for";
  }
  // What does not compile has no PTX either; `compiled` says why.
  if (options.ptx && (!options.compile || inspection.compiled.ok))
    inspection.ptx = compile_to_ptx(compiled, device.arch, {.line_info = options.line_info});

  for (const Try& each : cache.tries(stored_as(key.problem, overrides), device_class(device))) {
    if (each.estimated)
      ++inspection.num_estimates;
    else
      inspection.measured.push_back({each.config, each.estimate_us, each.measurement});
  }
  if (!inspection.measured.empty()) inspection.measured_work = timed_work(key.problem);
  inspection.reach = reach_of(inspection, choice, key.problem, launch);
  return inspection;
}

}  // namespace attnforge
