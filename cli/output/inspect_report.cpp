#include "cli/output/inspect_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "attnforge/json.h"
#include "attnforge/printable.h"
#include "cli/options/gpus.h"
#include "cli/output/table.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {

// ---- Parts of sections ----

std::string heading(const std::string& text) { return bold(text) + "\n"; }

std::string row(const char* name, const std::string& value) {
  return fmt::format("  {:<14}{}\n", name, printable(value));
}

std::string indented(const std::string& raw) {
  std::string text = printable_lines(raw);
  if (text.ends_with('\n')) text.pop_back();
  return text.empty() ? "" : "    " + hanging(std::move(text), 4) + "\n";
}

std::string cut_lines(const std::vector<CutCount>& cuts, std::size_t most, bool full) {
  std::string text;
  for (std::size_t n = 0; n < std::min(most, cuts.size()); ++n) {
    const CandidateInfo& example = cuts[n].example;
    text += fmt::format("  {:>9} cut: {}\n            as  {}\n", cuts[n].count,
                        printable(example.cut), printable(config_text(example.config, full)));
  }
  return text;
}

/// A table of the kept candidates; `more` is said of those that are left out.
std::string kept_table(const Inspection& i, int most, bool full, const char* more) {
  Table table = table_of({">estimate us", "config"});
  for (const CandidateInfo& candidate : i.candidates) {
    if (!candidate.cut.empty()) continue;
    if (most > 0 && static_cast<int>(table.rows.size()) == most) break;
    table.rows.push_back(
        {fmt::format("{:.2f}", candidate.estimate_us), config_text(candidate.config, full)});
  }
  const int left = i.num_candidates - static_cast<int>(table.rows.size());
  return aligned(table, "  ") +
         (left > 0 ? fmt::format("  ... and {} more: {}\n", left, more) : "");
}

std::string sees_text(const SeenKeys& sees) {
  const auto end = [](std::int64_t keys, const char* where) {
    return fmt::format("{} {} its position", keys, where);
  };
  std::string text;
  if (!sees.left && !sees.right) {
    text = "every key";
  } else if (sees.left.value_or(0) < 0 || sees.right.value_or(0) < 0) {  // not its own position
    const auto place = [&](std::int64_t at) {
      return at < 0 ? end(-at, "before") : end(at, "after");
    };
    text = fmt::format("keys from {} to {}", sees.left ? place(-*sees.left) : "the first one",
                       sees.right ? place(*sees.right) : "the last one");
  } else if (!sees.left && sees.right == 0) {
    text = "every key up to its own position";
  } else {
    const auto count = [](const std::optional<std::int64_t>& keys) {
      return keys ? std::to_string(*keys) : std::string("all");
    };
    text = fmt::format("{} keys before and {} after its position", count(sees.left),
                       count(sees.right));
  }
  return text + (sees.more_hidden ? ", but for those that the mask hides" : "");
}

std::string work_text(const Inspection& i) {
  return fmt::format("{}, {:.4g} MB to move at least",
                     i.work.is_known() ? fmt::format("{:.4g} GFLOP", i.work.flops * 1e-9)
                                       : fmt::format("GFLOP not known ({})", i.work.unknown),
                     minimum_bytes(i.problem) * 1e-6);
}

std::string compiled_text(const CompileInfo& c) {
  return fmt::format(
      "{} registers per thread, {} bytes of spills, {} bytes of shared memory, {} block{} per SM "
      "(occupancy {:.0f}%)",
      c.registers, c.spill_bytes, c.smem_bytes, c.blocks_per_sm, c.blocks_per_sm == 1 ? "" : "s",
      100 * c.occupancy);
}

std::string launch_text(const LaunchInfo& l) {
  return fmt::format("{} x {} x {} blocks of {} x {} x {} threads", l.grid[0], l.grid[1], l.grid[2],
                     l.block[0], l.block[1], l.block[2]);
}

std::string memory_text(const LaunchInfo& l) {
  return fmt::format("{} bytes of shared memory per block, {} bytes of workspace", l.smem_bytes,
                     l.workspace_bytes);
}

/// "32 of 132 SMs, 11% of the memory bound": what a grid leaves idle is the first thing to know.
std::string reach_text(const Inspection& i) {
  const Reach& reach = i.reach;
  const std::string sms = fmt::format("{} of {} SMs", reach.busy_sms, i.device.num_sms);
  if (!(reach.time_us > 0)) return sms;
  // The model knows windows and how many blocks are present, and nothing else of a mask.
  const std::string time = fmt::format(
      "{} {:.2f} us{}", reach.measured ? "measured" : "estimated", reach.time_us,
      i.sees.text_hides && !reach.measured ? ", as if the text hid nothing more" : "");
  if (reach.busy_sms >= i.device.num_sms || !(reach.memory_us > 0)) {
    return fmt::format("{}, {}{:.0f} GB/s ({})", sms,
                       reach.work.is_known()
                           ? fmt::format("{:.1f} TFLOP/s, ", reach.work.tflops_per_s(reach.time_us))
                           : "",
                       reach.minimum_bytes / reach.time_us * 1e-3, time);
  }
  return fmt::format(
      "{}, {:.0f}% of the memory bound ({}, memory alone {:.2f} us): the grid cannot fill the GPU",
      sms, 100 * reach.memory_us / reach.time_us, time, reach.memory_us);
}

std::string tries_text(const Inspection& i) {
  const std::string tries = i.measured.empty() ? "nothing measured yet"
                                               : counted(std::ssize(i.measured), "try", "tries");
  return i.num_estimates == 0 ? tries
                              : fmt::format("{}, {} of tune --arch", tries,
                                            counted(i.num_estimates, "estimate", "estimates"));
}

std::string untuned_text(const Inspection& i) {
  return fmt::format("{}: attnforge tune {}", tries_text(i), to_string(i.problem));
}

std::string source_size(const Inspection& i) {
  return fmt::format("{} bytes, {} lines", i.source.size(),
                     std::count(i.source.begin(), i.source.end(), '\n'));
}

/// "walk  SplitWalk<...>  splits wraps; parts/splits/walk.cuh": who made a kernel of what.
std::string assembly_text(const AssemblyInfo& assembly) {
  if (assembly.base.empty()) return row("pieces", "none: the kernel is all of one piece");
  Table table = table_of({"piece", "type", "by", "header"});
  for (const PieceInfo& piece : assembly.pieces) {
    table.rows.push_back(
        {piece.slot, piece.type,
         piece.changes.empty() ? "family" : fmt::format("{}", fmt::join(piece.changes, ", ")),
         piece.header});
  }
  std::string text = row("pieces", assembly.base + (table.rows.empty() ? "" : ", but for"));
  if (!table.rows.empty()) text += aligned(table, "    ");
  std::vector<std::string> steps, argument;
  for (const StepInfo& step : assembly.steps)
    steps.push_back(
        fmt::format("{} ({}, {})", step.kernel, step.part, step.after ? "after" : "before"));
  for (const ArgumentInfo& each : assembly.argument)
    argument.push_back(fmt::format("{} {} bytes", each.part, each.bytes));
  return text + row("steps", steps.empty() ? "none" : fmt::format("{}", fmt::join(steps, ", "))) +
         row("argument", fmt::format("{}", fmt::join(argument, ", ")));
}

// ---- Sections in full ----

std::string problem_section(const Inspection& i, const InspectView&) {
  return heading("1. Problem") + row("text", to_string(i.problem)) +
         row("softmax_scale", fmt::format("{:g}", effective_softmax_scale(i.problem))) +
         row("sees", sees_text(i.sees)) + row("work", work_text(i));
}

std::string gpu_section(const Inspection& i, const InspectView&) {
  const DeviceFacts& d = i.device;
  return heading("2. GPU") + row("name", describe(d)) +
         row("arch", fmt::format("sm_{}: {} SMs, {} registers and {} KiB shared memory per SM ({} "
                                 "KiB per block), L2 {} MiB",
                                 d.arch.name, d.num_sms, d.arch.registers_per_sm,
                                 d.arch.smem_per_sm_bytes / 1024,
                                 d.arch.smem_per_block_bytes / 1024, d.l2_bytes >> 20));
}

std::string candidates_section(const Inspection& i, const InspectView& view) {
  std::string text = heading(fmt::format("3. Candidates: {} kept", i.num_candidates));
  for (const std::string& rejected : i.rejected_families)
    text += fmt::format("  family {}\n", printable(rejected));
  return text + kept_table(i, view.listed(20), view.full, "--candidates 0");
}

std::string cuts_section(const Inspection& i, const InspectView& view) {
  std::string text = heading(fmt::format("   Cuts: {}", i.num_cut));
  if (!view.cuts) {
    return text + cut_lines(i.cuts, i.cuts.size(), view.full) +
           (i.cuts.empty() ? "" : "  each of them: --cuts\n");
  }
  Table table = table_of({"cut because", "config"});
  for (const CandidateInfo& candidate : i.candidates) {
    if (!candidate.cut.empty())
      table.rows.push_back({candidate.cut, config_text(candidate.config, view.full)});
  }
  return text + aligned(table, "  ");
}

std::string config_section(const Inspection& i, const InspectView& view) {
  std::string text = heading("4. Config");
  if (!view.full) text += row("in words", describe_config(i.config));
  text += row("config", i.config) + row("provenance", std::string(to_string(i.provenance))) +
          row("found in", std::string(to_string(i.layer))) + row("why", i.why);
  return i.slow_path.empty() ? text : text + row("slow", i.slow_path);
}

std::string source_section(const Inspection& i, const InspectView&) {
  return heading("5. Source") + row("digest", i.digest) +
         row("size", source_size(i) + " (all of it: --source)") + assembly_text(i.assembly) +
         indented(i.source_entry);
}

std::string code_section(const Inspection& i, const InspectView&) {
  const CompileInfo& c = i.compiled;
  std::string text = heading("6. Code");
  if (!i.not_compiled.empty()) return text + row("not compiled:", i.not_compiled);
  text += fmt::format("  {:<14}{}\n", "result", c.ok ? green("ok") : red("failed"));
  if (c.ok) {
    text += row("resources", compiled_text(c));
    text += row("cubin", fmt::format("{} bytes in {:.0f} ms", c.cubin_bytes, c.compile_ms));
  }
  if (!c.log.empty()) text += row("log", "") + indented(c.log);
  return text;
}

std::string launch_section(const Inspection& i, const InspectView&) {
  std::string text = heading("7. Launch");
  if (i.launches.empty()) return text + "  none: there is nothing to compute\n";
  for (const LaunchInfo& l : i.launches)
    text += row(l.role.c_str(), l.kernel) + row("grid", launch_text(l)) +
            row("memory", memory_text(l));
  return text + row("reach", reach_text(i));
}

std::string database_section(const Inspection& i, const InspectView& view) {
  std::string text = heading("8. Database: " + tries_text(i));
  if (i.measured.empty()) return text + "  attnforge tune " + to_string(i.problem) + "\n";
  return text + tries_table(i.measured, view.listed(20), view.full);
}

struct Section {
  const char* name;
  std::string (*text)(const Inspection&, const InspectView&);
};
constexpr Section kSections[] = {
    {"problem", problem_section}, {"gpu", gpu_section},       {"candidates", candidates_section},
    {"cuts", cuts_section},       {"config", config_section}, {"source", source_section},
    {"code", code_section},       {"launch", launch_section}, {"database", database_section}};

// ---- One screen ----

std::string line(const char* name, const std::string& value) {
  return fmt::format("{}{}\n", bold(fmt::format("{:<12}", name)), printable(value));
}

std::string candidates_overview(const Inspection& i, const InspectView& view) {
  constexpr int kKept = 5;
  constexpr std::size_t kReasons = 4;
  std::string text = line("Candidates",
                          fmt::format("{} kept, {} cut", i.num_candidates, i.num_cut));
  text += kept_table(i, view.listed(kKept), view.full, "--section candidates");
  text += cut_lines(i.cuts, kReasons, view.full);
  if (i.cuts.size() > kReasons)
    text += fmt::format("  ... and {} more reasons: --section cuts\n", i.cuts.size() - kReasons);
  return text;
}

std::string code_overview(const Inspection& i) {
  if (!i.not_compiled.empty()) return line("Code", "not compiled: " + i.not_compiled);
  if (!i.compiled.ok) {
    constexpr int kFewLines = 8;  // as an error in a text of the problem has
    const std::string log = indented(i.compiled.log);
    if (!log.empty() && std::ranges::count(log, '\n') <= kFewLines)
      return line("Code", "does not compile") + log;
    return line("Code", "does not compile; the compiler's log: --section code");
  }
  return line("Code", compiled_text(i.compiled));
}

std::string launch_overview(const Inspection& i) {
  if (i.launches.empty()) return line("Launch", "none: there is nothing to compute");
  const auto own = std::ranges::find(i.launches, true, &LaunchInfo::own);
  const LaunchInfo& kernel = own == i.launches.end() ? i.launches.back() : *own;
  const auto others = [](std::ptrdiff_t count, const char* where) {
    return count <= 0 ? ""
                      : fmt::format(", {} {} other kernel{}", where, count, count == 1 ? "" : "s");
  };
  const std::string before = others(&kernel - i.launches.data(), "after"),
                    after = others(&i.launches.back() - &kernel, "before");
  return line("Launch", launch_text(kernel) + before + after) + line("", memory_text(kernel)) +
         line("Reach", reach_text(i));
}

std::string overview(const Inspection& i, const InspectView& view) {
  constexpr int kTries = 3;
  const DeviceFacts& d = i.device;
  // What is wrong comes first: the numbers below are of a kernel that there will not be.
  const bool fails = i.not_compiled.empty() && !i.compiled.ok;
  std::string text = (fails ? code_overview(i) : "") + line("Problem", to_string(i.problem)) +
                     line("", work_text(i) + (is_attention(i.problem)
                                                  ? "; a query sees " + sees_text(i.sees)
                                                  : "")) +
                     line("GPU",
                          fmt::format("{}{}: {} SMs, {} KiB shared memory per block, L2 {} MiB",
                                      describe(d),
                                      d.ordinal < 0 ? "" : fmt::format(" (sm_{})", d.arch.name),
                                      d.num_sms, d.arch.smem_per_block_bytes / 1024,
                                      d.l2_bytes >> 20));
  text += candidates_overview(i, view);
  text += line("Config", config_text(i.config, view.full)) +
          line("", fmt::format("{}: {}", to_string(i.provenance), i.why));
  if (!i.slow_path.empty()) text += line("Slow", i.slow_path);
  text += line("Source", fmt::format("{}, digest {}", source_size(i), i.digest)) +
          (fails ? "" : code_overview(i)) + launch_overview(i);
  if (i.measured.empty()) {
    text += line("Database", untuned_text(i));
  } else {
    text += line("Database", tries_text(i)) + tries_table(i.measured, kTries, view.full);
  }
  return text + fmt::format("\nMore: --section with one of {}; --source; --full: whole configs\n",
                            fmt::join(section_names(), ", "));
}

}  // namespace

const std::vector<std::string>& section_names() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names;
    for (const Section& section : kSections) names.emplace_back(section.name);
    names.emplace_back("all");
    return names;
  }();
  return kNames;
}

std::string report(const Inspection& i, const InspectView& view) {
  if (view.sections.empty()) return overview(i, view);
  const auto wanted = [&](const char* name) { return std::ranges::count(view.sections, name) > 0; };
  std::string text;
  for (const Section& section : kSections) {
    if (wanted(section.name) || wanted("all"))
      text += (text.empty() ? "" : "\n") + section.text(i, view);
  }
  return text;
}

Json to_json(const Inspection& inspection, const InspectView& view) {
  constexpr int kListed = 10;
  const int most = view.listed(kListed);
  Inspection shown = inspection;
  int kept = 0;
  std::erase_if(shown.candidates, [&](const CandidateInfo& candidate) {
    return candidate.cut.empty() && ++kept > most && most > 0;
  });
  return Json::parse(attnforge::to_json(shown));
}

}  // namespace attnforge::cli
