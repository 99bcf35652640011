#include "cli/page/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "attnforge/inspect.h"
#include "attnforge/version.h"
#include "cli/options/gpus.h"
#include "cli/output/table.h"
#include "cli/page/page.h"

namespace attnforge::cli {
namespace {

using Key = std::pair<std::string, std::string>;  // problem, GPU class

int rank_of(const std::string& rigor) {
  return rigor == "exhaustive" ? 3 : rigor == "full" ? 2 : rigor == "quick" ? 1 : 0;
}

void add_line(ReportRow& row, const Json& line) {
  if (text_of(line, "kind") == "search") {
    if (const std::string rigor = text_of(line, "rigor"); rank_of(rigor) > rank_of(row.rigor))
      row.rigor = rigor;
    return;
  }
  const double time = number_of(line, "time_us"), estimate = number_of(line, "estimate_us");
  if (text_of(line, "status") != "ok" || line.value("estimated", false) || !(time > 0)) return;
  if (row.points.empty() ||
      estimate < std::min_element(row.points.begin(), row.points.end())->first) {
    row.untuned = text_of(line, "config");
    row.untuned_us = time;
  }
  row.points.emplace_back(estimate, time);
}

double geometric_mean_of_gains(const Report& report) {
  double sum = 0;
  int count = 0;
  for (const ReportRow& row : report.rows) {
    if (row.gain() <= 0) continue;
    sum += std::log(row.gain());
    ++count;
  }
  return count == 0 ? 0 : std::exp(sum / count);
}

std::int64_t stale_of(const Report& report) {
  return std::ranges::count(report.rows, "stale", &ReportRow::state);
}

}  // namespace

double ReportRow::gain() const {
  return untuned_us > 0 && best.time_us > 0 && !best.estimated ? untuned_us / best.time_us : 0;
}

std::vector<ReportRow> report_rows(const std::vector<CacheEntry>& entries, std::istream& lines) {
  std::vector<ReportRow> rows;
  std::map<Key, std::size_t> places;
  for (const CacheEntry& entry : entries) {
    places[{entry.problem, entry.device_class}] = rows.size();
    rows.push_back({.best = entry});
  }
  for (std::string text; std::getline(lines, text);) {
    const Json line = Json::parse(text);
    const auto place = places.find({text_of(line, "problem"), text_of(line, "device_class")});
    if (place != places.end()) add_line(rows[place->second], line);
  }
  return rows;
}

std::string report_text(const Report& report) {
  if (report.rows.empty()) return "no problem in the database matches\n";
  Table table = table_of(
      {">time us", ">gain", ">tries", "rigor", "measured", "code", "GPU", "problem"});
  for (const ReportRow& row : report.rows) {
    const CacheEntry& best = row.best;
    table.rows.push_back({best.estimated ? "estimate" : fmt::format("{:.2f}", best.time_us),
                          row.gain() > 0 ? fmt::format("{:.2f}x", row.gain()) : "-",
                          std::to_string(best.tries), row.rigor.empty() ? "-" : row.rigor,
                          best.estimated ? "-" : best.measured_at.substr(0, 10), row.state,
                          gpu_of_class(best.device_class), best.problem});
  }
  const double mean = geometric_mean_of_gains(report);
  std::string text = aligned(table);
  text += fmt::format("\n{}, {}", counted(std::ssize(report.rows), "problem", "problems"),
                      counted(report.stats.tries, "try", "tries"));
  if (mean > 0) text += fmt::format("; tuning gains {:.2f}x (geometric mean)", mean);
  if (const std::int64_t stale = stale_of(report))
    text += fmt::format("; {} stale: tune them again", stale);
  return text + "\n";
}

Json report_json(const Report& report, const std::string& made) {
  Json rows = Json::array();
  for (const ReportRow& row : report.rows) {
    const CacheEntry& best = row.best;
    Json& json = rows.emplace_back(ATTNFORGE_JSON(best, problem, device_class, config, time_us,
                                                  noise, estimated, tries, failures, has_cubin,
                                                  driver, nvrtc, measured_at));
    json.update(ATTNFORGE_JSON(row, untuned, untuned_us, rigor, state, points));
    json["gpu"] = gpu_of_class(best.device_class);
    json["gain"] = row.gain();
  }
  Json json{{"attnforge", kVersion}, {"made", made}};
  json.update(ATTNFORGE_JSON(report.stats, path, file_bytes, tries, cubins, health));
  json.update({{"mean_gain", geometric_mean_of_gains(report)},
               {"stale", stale_of(report)},
               {"rows", rows}});
  return json;
}

std::string report_page(const Report& report, const std::string& made) {
  Json data = report_json(report, made);
  // The config of each row, as people read it.
  for (const ReportRow& row : report.rows)
    data["words"].push_back(describe_config(row.best.config));
  return page("report.html", "Database of winners - attnforge", data);
}

}  // namespace attnforge::cli
