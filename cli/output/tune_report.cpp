#include "cli/output/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "attnforge/json.h"
#include "attnforge/measure.h"
#include "attnforge/printable.h"
#include "attnforge/version.h"
#include "cli/options/gpus.h"
#include "cli/output/table.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {

std::string time_text(double us) { return us > 0 ? fmt::format("{:.2f}", us) : "-"; }

/// What a search that was cut short left out.
std::string left_text(const TuneResult& result) {
  std::string text = ", " + yellow("stopped early");
  if (result.left == 0) return text;
  text += fmt::format(", {} not tried", result.left);
  if (result.left_s > 0) text += fmt::format(" (about {:.0f} s)", std::ceil(result.left_s));
  return text;
}

std::string speed_up_text(const TuneResult& result) {
  const double factor = speed_up(result);
  return factor > 0 ? fmt::format("{:.3f}x", factor) : "-";
}

}  // namespace

std::string report(const TuneJob& job, int top, bool full) {
  if (!job.result) {
    return fmt::format("{}\n  {}: {}\n", bold(to_string(job.problem)), red("failed"),
                       job.error.empty() ? "not begun" : message_text(job.error));
  }
  const TuneResult& r = *job.result;
  const Work work = timed_work(r.problem);
  const auto tflops_text = [&](double us) {
    return us > 0 && work.is_known() ? fmt::format("{:.1f}", work.tflops_per_s(us)) : "-";
  };
  std::string text = fmt::format("{}\n", bold(to_string(job.problem)));
  if (!(r.problem == job.problem)) text += fmt::format("  measured as  {}\n", to_string(r.problem));
  Table table = table_of({"", ">time us", ">TFLOP/s", "config"});
  if (!r.winner.empty()) {
    table.rows.push_back(
        {"winner", time_text(r.winner_us), tflops_text(r.winner_us), config_text(r.winner, full)});
  }
  table.rows.push_back({"untuned", time_text(r.untuned_us), tflops_text(r.untuned_us),
                        config_text(r.untuned, full)});
  text += aligned(table, "  ");
  if (!work.is_known()) text += fmt::format("  no TFLOP/s: {}\n", printable(work.unknown));
  text += fmt::format("  speed-up {}, {} tried, {} failed, {} reused, space {}, {:.1f} s on {}{}\n",
                      green(speed_up_text(r)), r.tried, r.failed, r.reused, r.space, r.elapsed_s,
                      describe(job.device), r.complete ? "" : left_text(r));
  if (r.winner.empty() && r.failed == 0 && !r.complete) {
    text += fmt::format(
        "  {}: it ended before the model's choice was compiled and timed, which others must beat; "
        "plans take that choice\n",
        red("failed"));
  } else if (r.winner.empty()) {
    text += fmt::format(
        "  {}: no config worked{}\n", red("failed"),
        r.trials.empty()
            ? ""
            : "; the first said: " + printable(first_line(r.trials.front().measurement.detail)));
  }
  if (!r.not_kept.empty())
    text += fmt::format("  {}: it is not stored, and plans do not find it: {}\n", red("failed"),
                        printable(r.not_kept));
  if (top > 0) text += tries_table(r.trials, top, full);
  return text;
}

std::string summary(const std::vector<TuneJob>& jobs) {
  Table table = table_of({">winner us", ">untuned us", ">speed-up", ">tried", ">failed", ">reused",
                          ">space", ">GPU", "problem"});
  for (const TuneJob& job : jobs) {
    if (!job.result) {
      const std::string dash = "-";
      table.rows.push_back({job.error.empty() ? "not begun" : "failed", dash, dash, dash, dash,
                            dash, dash, dash, to_string(job.problem)});
      continue;
    }
    const TuneResult& r = *job.result;
    table.rows.push_back({r.winner.empty() ? "failed" : time_text(r.winner_us),
                          time_text(r.untuned_us), speed_up_text(r), std::to_string(r.tried),
                          std::to_string(r.failed), std::to_string(r.reused),
                          std::to_string(r.space), std::to_string(job.device.ordinal),
                          to_string(job.problem)});
  }
  return aligned(table);
}

Json to_json(const std::vector<TuneJob>& jobs, int top, bool interrupted) {
  Json results = Json::array();
  for (const TuneJob& job : jobs) {
    Json entry{{"problem", to_string(job.problem)}};
    if (!job.result) {
      entry["error"] = job.error.empty()
                           ? Json{{"code", "not_begun"}, {"message", "not begun"}}
                           : Json{{"code", to_string(job.code)}, {"message", job.error}};
      results.push_back(entry);
      continue;
    }
    TuneResult shown = *job.result;
    shown.trials.resize(std::min(shown.trials.size(), static_cast<std::size_t>(top)));
    entry = Json::parse(attnforge::to_json(shown, job.problem, job.device));
    results.push_back(entry);
  }
  return {{"attnforge", kVersion}, {"interrupted", interrupted}, {"results", results}};
}

}  // namespace attnforge::cli
