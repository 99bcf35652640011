// report.cpp - attnforge report: a whole database at a glance, as a table, as JSON, or as a page of
// HTML.
#include <fmt/ranges.h>

#include <sstream>

#include "attnforge/cache.h"
#include "cli/files/text_files.h"
#include "cli/page/report.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct ReportArguments {
  std::vector<std::string> filter;
  std::string cache, html;
  bool json = false;
};

constexpr const char* kReportFooter =
    R"(FILTER is part of a problem's text, as attnforge cache ls prints it.

Examples:
  attnforge report
  attnforge report --html winners.html
  attnforge report --json causal)";

int run_report(const ReportArguments& a) {
  const std::string filter = fmt::format("{}", fmt::join(a.filter, " "));
  Report report;
  const std::vector<CacheEntry> entries = cache_list(a.cache, filter);
  std::stringstream lines;
  cache_export(a.cache, lines, filter);
  report.rows = report_rows(entries, lines);
  report.stats = cache_stats(a.cache);
  for (ReportRow& row : report.rows) {
    const std::string today = digest_today(row.best.problem, row.best.config);
    if (today.empty() || row.best.digest.empty()) continue;
    row.state = today == row.best.digest ? "today" : "stale";
  }
  if (!a.html.empty()) {
    write_text(a.html, report_page(report, utc_now()));
    if (a.html != "-") write_out(fmt::format("{}\n", printable(a.html)));
  } else if (a.json) {
    print_json(report_json(report, utc_now()));
  } else {
    write_out(report_text(report));
  }
  return kExitOk;
}

}  // namespace

Verb add_report(Command& program) {
  auto arguments = std::make_shared<ReportArguments>();
  ReportArguments& a = *arguments;
  Command& verb = *program.add_subcommand(
      "report", "The database at a glance: winners, gains over untuned, GPUs, ages");
  add_value(verb, "filter FILTER", a.filter, "Part of a problem's text");
  auto* html = add_value(verb, "--html FILE", a.html,
                         "Write a page of HTML that needs nothing else");
  add_cache_option(verb, a.cache);
  verb.add_flag("--json", a.json, "As JSON")->excludes(html);
  verb.footer(kReportFooter);
  return [arguments] { return run_report(*arguments); };
}

}  // namespace attnforge::cli
