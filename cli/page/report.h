// report.h - the page, the table and the JSON of attnforge report: a whole database at a
// glance. Pure.
#pragma once

#include <istream>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/cache.h"
#include "cli/output/json.h"

namespace attnforge::cli {

/// The tries of a problem on a GPU class, and the best of them.
struct ReportRow {
  CacheEntry best{};
  std::string rigor{};    // of the most rigorous search that ended; "": none did
  std::string untuned{};  // of the measured tries the one that the model liked most: what a plan
                          // takes without tuning
  double untuned_us = 0;  // 0: nothing was measured
  std::string state = "unknown";  // of the best one's code: "today", "stale" or that
  std::vector<std::pair<double, double>> points{};  // estimate and time in us of good tries

  double gain() const;  // untuned / best; 0: unknown
};

struct Report {
  std::vector<ReportRow> rows{};  // in the order of cache_list()
  CacheStats stats{};
};

/// `lines` as cache_export() writes them. States are left to the caller.
std::vector<ReportRow> report_rows(const std::vector<CacheEntry>& entries, std::istream& lines);

/// For people: a line a problem, and a summary.
std::string report_text(const Report& report);
/// `made`: date, ISO 8601.
Json report_json(const Report& report, const std::string& made);
std::string report_page(const Report& report, const std::string& made);

}  // namespace attnforge::cli
