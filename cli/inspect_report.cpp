#include "cli/inspect_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "attnforge/printable.h"
#include "attnforge/version.h"
#include "cli/gpus.h"
#include "cli/table.h"
#include "cli/terminal.h"

namespace attnforge::cli {
namespace {

constexpr auto kRight = Column::Align::kRight;

std::string heading(int number, const std::string& text) {
  return fmt::format("\n{}\n", bold(fmt::format("{}. {}", number, text)));
}

std::string row(const char* name, const std::string& value) {
  return fmt::format("  {:<14}{}\n", name, printable(value));
}

std::string indented(const std::string& raw) {
  const std::string text = printable_lines(raw);
  std::string result;
  std::size_t begin = 0;
  while (begin < text.size()) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    result += "    " + text.substr(begin, end - begin) + "\n";
    begin = end + 1;
  }
  return result;
}

/// "smem 180224 > 101376" and "smem 196608 > 101376" are one reason: "smem # > #".
std::string without_numbers(const std::string& reason) {
  std::string text;
  for (char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) text += c;
    if (digit && (text.empty() || text.back() != '#')) text += '#';
  }
  return text;
}

/// How many configs were cut for a kind of reason.
struct CutCount {
  int count = 0;
  std::string reason;  // with its numbers, if they are always the same
};

void count_cut(std::map<std::string, CutCount>& counts, const std::string& reason) {
  const std::string kind = without_numbers(reason);
  CutCount& cut = counts[kind];
  if (++cut.count == 1) cut.reason = reason;
  if (cut.reason != reason) cut.reason = kind;
}

std::string problem_section(const Inspection& i) {
  const Problem& p = i.problem;
  const Window window = effective_window(p);
  const auto bound = [](std::int64_t keys) {
    return keys < 0 ? std::string("all") : std::to_string(keys);
  };
  std::string text = heading(1, "Problem");
  text += row("text", to_string(p));
  text += row("softmax_scale", fmt::format("{:g}", effective_softmax_scale(p)));
  text += row("sees", fmt::format("{} keys before and {} after its position", bound(window.left),
                                  bound(window.right)));
  text += row("work", fmt::format("{:.4g} GFLOP, {:.4g} MB to move at least", flops(p) * 1e-9,
                                  minimum_bytes(p) * 1e-6));
  return text;
}

std::string device_section(const DeviceFacts& d) {
  std::string text = heading(2, "GPU");
  text += row("name", describe(d));
  text += row("arch", fmt::format("sm_{}: {} SMs, {} registers and {} KiB shared memory per SM ({} "
                                  "KiB per block), L2 {} MiB",
                                  d.arch.name, d.num_sms, d.arch.registers_per_sm,
                                  d.arch.smem_per_sm_bytes / 1024,
                                  d.arch.smem_per_block_bytes / 1024, d.l2_bytes >> 20));
  return text;
}

std::string candidates_section(const Inspection& i, const InspectView& view) {
  Table kept{{{"estimate us", kRight}, {"config"}}, {}};
  Table cuts{{{"cut because"}, {"config"}}, {}};
  std::map<std::string, CutCount> reasons;
  int kept_count = 0, cut_count = 0;
  for (const CandidateInfo& candidate : i.candidates) {
    if (candidate.cut.empty()) {
      if (view.candidates == 0 || kept_count < view.candidates) {
        kept.rows.push_back({fmt::format("{:.2f}", candidate.estimate_us), candidate.config});
      }
      ++kept_count;
    } else {
      if (view.cuts) cuts.rows.push_back({candidate.cut, candidate.config});
      count_cut(reasons, candidate.cut);
      ++cut_count;
    }
  }
  std::string text = heading(3, fmt::format("Candidates: {} kept, {} cut", kept_count, cut_count));
  for (const std::string& rejected : i.rejected_families)
    text += fmt::format("  family {}\n", rejected);
  text += aligned(kept, "  ");
  if (static_cast<int>(kept.rows.size()) < kept_count) {
    text += fmt::format("  ... and {} more: --candidates 0\n",
                        kept_count - static_cast<int>(kept.rows.size()));
  }
  if (view.cuts) return text + aligned(cuts, "  ");
  std::vector<std::pair<int, std::string>> common;
  for (const auto& [kind, cut] : reasons) common.emplace_back(-cut.count, cut.reason);
  std::sort(common.begin(), common.end());
  constexpr std::size_t kShown = 8;
  for (std::size_t n = 0; n < std::min(kShown, common.size()); ++n) {
    text += fmt::format("  {:>6} cut: {}\n", -common[n].first, printable(common[n].second));
  }
  if (common.size() > kShown)
    text += fmt::format("  ... and {} more reasons: --cuts\n", common.size() - kShown);
  return text;
}

std::string source_section(const Inspection& i) {
  std::string text = heading(5, "Source");
  text += row("digest", i.digest);
  text += row("size", fmt::format("{} bytes, {} lines (all of it: --source)", i.source.size(),
                                  std::count(i.source.begin(), i.source.end(), '\n')));
  return text + indented(i.source_entry);
}

std::string compile_section(const CompileInfo& c, const InspectView& view) {
  std::string text = heading(6, "Compiled");
  if (!view.not_compiled.empty())
    return text + "  not compiled: " + printable(view.not_compiled) + "\n";
  text += fmt::format("  {:<14}{}\n", "result", c.ok ? green("ok") : red("failed"));
  if (c.ok) {
    text += row("registers",
                fmt::format("{} per thread, {} bytes of spills", c.registers, c.spill_bytes));
    text += row("smem", fmt::format("{} bytes per block", c.smem_bytes));
    text += row("occupancy",
                fmt::format("{:.0f}%, {} blocks per SM", 100 * c.occupancy, c.blocks_per_sm));
    text += row("cubin", fmt::format("{} bytes in {:.0f} ms", c.cubin_bytes, c.compile_ms));
  }
  if (!c.log.empty()) text += row("log", "") + indented(c.log);
  return text;
}

std::string launch_section(const std::vector<LaunchInfo>& launches) {
  std::string text = heading(7, "Launch");
  if (launches.empty()) return text + "  none: there is nothing to compute\n";
  for (const LaunchInfo& l : launches) {
    text += row("kernel", l.kernel);
    text += row("grid", fmt::format("{} x {} x {} blocks of {} x {} x {} threads", l.grid[0],
                                    l.grid[1], l.grid[2], l.block[0], l.block[1], l.block[2]));
    text += row("memory", fmt::format("{} bytes of shared memory per block, {} bytes of workspace",
                                      l.smem_bytes, l.workspace_bytes));
  }
  return text;
}

std::string measured_section(const Inspection& i, const InspectView& view) {
  std::string text = heading(8, fmt::format("Database: {} tries", i.measured.size()));
  if (i.measured.empty())
    return text + "  nothing measured yet: attnforge tune " + to_string(i.problem) + "\n";
  Table table{
      {{"time us", kRight}, {"noise", kRight}, {"estimate us", kRight}, {"status"}, {"config"}},
      {}};
  for (const Trial& trial : i.measured) {
    if (view.candidates > 0 && static_cast<int>(table.rows.size()) == view.candidates) break;
    const Measurement& m = trial.measurement;
    const bool ok = m.status == Status::kOk;
    table.rows.push_back({ok ? fmt::format("{:.2f}", m.time_us) : "-",
                          ok ? fmt::format("{:.1f}%", 100 * m.noise) : "-",
                          fmt::format("{:.2f}", trial.estimate_us),
                          std::string(to_string(m.status)), trial.config});
  }
  return text + aligned(table, "  ");
}

}  // namespace

std::string report(const Inspection& i, const InspectView& view) {
  std::string text = problem_section(i) + device_section(i.device) + candidates_section(i, view);
  text += heading(4, "Config") + row("config", i.config) +
          row("provenance", std::string(to_string(i.provenance))) + row("why", i.why);
  if (!i.slow_path.empty()) text += row("slow", i.slow_path);
  text += source_section(i) + compile_section(i.compiled, view) + launch_section(i.launches) +
          measured_section(i, view);
  return text.substr(1);  // without the blank line before the first heading
}

Json to_json(const Inspection& i, const InspectView& view) {
  Json candidates = Json::array(), cuts = Json::array(), launches = Json::array(),
       measured = Json::array();
  int kept_count = 0, cut_count = 0;
  for (const CandidateInfo& candidate : i.candidates) {
    if (!candidate.cut.empty()) {
      ++cut_count;
      if (view.cuts) cuts.push_back({{"config", candidate.config}, {"reason", candidate.cut}});
    } else if (++kept_count; view.candidates == 0 || kept_count <= view.candidates) {
      candidates.push_back({{"config", candidate.config}, {"estimate_us", candidate.estimate_us}});
    }
  }
  for (const LaunchInfo& launch : i.launches) launches.push_back(to_json(launch));
  for (const Trial& trial : i.measured) measured.push_back(to_json(trial));
  Json json{{"attnforge", kVersion},
            {"problem", to_string(i.problem)},
            {"flops", flops(i.problem)},
            {"minimum_bytes", minimum_bytes(i.problem)},
            {"device", to_json(i.device)},
            {"rejected_families", i.rejected_families},
            {"num_candidates", kept_count},
            {"candidates", candidates},
            {"num_cut", cut_count},
            {"cut", cuts},
            {"config", i.config},
            {"provenance", to_string(i.provenance)},
            {"why", i.why},
            {"slow_path", i.slow_path},
            {"digest", i.digest},
            {"entry", i.source_entry},
            {"source", i.source},
            {"compiled", view.not_compiled.empty() ? to_json(i.compiled) : Json(nullptr)},
            {"not_compiled", view.not_compiled},
            {"tiles", to_json(i.tiles)},
            {"launches", launches},
            {"measured_as", to_string(i.measured_as)},
            {"measured", measured}};
  if (!i.ptx.empty()) json["ptx"] = i.ptx;
  if (!i.sass.empty()) json["sass"] = i.sass;
  return json;
}

}  // namespace attnforge::cli
