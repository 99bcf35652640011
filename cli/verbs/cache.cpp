// cache.cpp - attnforge cache: look into the database of winners, carry it around, clear it.
#include "attnforge/cache.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <fstream>
#include <iostream>
#include <sstream>

#include "cli/files/text_files.h"
#include "cli/options/gpus.h"
#include "cli/output/table.h"
#include "cli/plot/figure.h"
#include "cli/plot/landscape.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {

struct CacheArguments {
  std::string path;
  std::vector<std::string> filter;
  std::string file = "-", export_filter;
  std::string folder = "pictures", axes;
  bool json = false, all = false, cubins = false, full = false;
  int top = 20;

  std::string filter_text() const { return fmt::format("{}", fmt::join(filter, " ")); }
};

constexpr const char* kCacheFooter =
    R"(FILTER is part of a problem's text, as ls prints it; without it, all problems are meant.

Examples:
  attnforge cache ls causal
  attnforge cache show head_dim=128
  attnforge cache plot head_dim=128 --axes block_n,stages --out pictures
  attnforge cache export winners.jsonl && attnforge cache import winners.jsonl --cache other.db
  attnforge cache clear --cubins --all)";

constexpr const char* kNothing = "no problem in the database matches\n";

/// Damaged rows do not hide the others, but must not be missed either.
void warn_of(const std::vector<std::string>& left_out) {
  if (left_out.empty()) return;
  fmt::print(stderr,
             "attnforge: {} that cannot be read {} left out, the first one: {}. See attnforge "
             "cache verify\n",
             counted(std::ssize(left_out), "row", "rows"), left_out.size() == 1 ? "is" : "are",
             left_out.front());
}

int run_ls(const CacheArguments& a) {
  std::vector<std::string> left_out;
  const std::vector<CacheEntry> entries = cache_list(a.path, a.filter_text(), &left_out);
  warn_of(left_out);
  Json rows = Json::array();
  Table table = table_of(
      {">time us", ">tries", ">failed", "cubin", "GPU class", "problem", "config"});
  for (const CacheEntry& e : entries) {
    rows.push_back(ATTNFORGE_JSON(e, problem, device_class, config, digest, time_us, noise, tries,
                                  failures, has_cubin, estimated, driver, nvrtc, measured_at));
    table.rows.push_back({e.estimated ? "estimate" : fmt::format("{:.2f}", e.time_us),
                          std::to_string(e.tries), std::to_string(e.failures),
                          e.has_cubin ? "yes" : "no", e.device_class, e.problem,
                          config_text(e.config, a.full)});
  }
  if (a.json) {
    print_json({{"attnforge", kVersion}, {"entries", rows}});
  } else {
    write_out(entries.empty() ? kNothing : aligned(table));
  }
  return kExitOk;
}

/// The lines of an export for one problem on one GPU class.
struct Searched {
  std::string problem, device_class;
  std::vector<Json> tries{};
};

std::vector<Searched> searched(const CacheArguments& a, std::vector<std::string>* left_out) {
  std::vector<Searched> all;
  for (const std::string& text : cache_show(a.path, a.filter_text(), left_out)) {
    Json line = Json::parse(text);
    const std::string problem = text_of(line, "problem"), gpu = text_of(line, "device_class");
    if (all.empty() || all.back().problem != problem || all.back().device_class != gpu)
      all.push_back({problem, gpu});
    all.back().tries.push_back(std::move(line));
  }
  return all;
}

int run_show(const CacheArguments& a) {
  std::vector<std::string> unread;
  const std::vector<Searched> all = searched(a, &unread);
  warn_of(unread);
  Json lines = Json::array();
  if (all.empty() && !a.json) write_out(kNothing);
  for (const Searched& each : all) {
    Table table = table_of({">time us", ">noise", ">estimate us", "status", "rigor", "config"});
    for (const Json& line : each.tries) {
      lines.push_back(line);
      if (a.top > 0 && static_cast<int>(table.rows.size()) == a.top) continue;
      const std::string status = text_of(line, "status");
      const bool estimated = line.value("estimated", false);
      const bool timed = status == "ok" && !estimated;
      table.rows.push_back({timed ? fmt::format("{:.2f}", number_of(line, "time_us")) : "-",
                            timed ? fmt::format("{:.1f}%", 100 * number_of(line, "noise")) : "-",
                            fmt::format("{:.2f}", number_of(line, "estimate_us")),
                            estimated ? "estimate" : status, text_of(line, "rigor"),
                            config_text(text_of(line, "config"), a.full)});
    }
    if (a.json) continue;
    const std::size_t left = each.tries.size() - table.rows.size();
    write_out(fmt::format("{}\n  on {}\n{}{}\n", bold(printable(each.problem)),
                          printable(each.device_class), aligned(table, "  "),
                          left > 0 ? fmt::format("  ... and {} more: --top 0\n", left) : ""));
  }
  if (a.json) print_json({{"attnforge", kVersion}, {"lines", lines}});
  return kExitOk;
}

int run_plot(const CacheArguments& a) {
  std::vector<Search> searches;
  for (const Searched& each : searched(a, nullptr)) {
    Search search{.problem = each.problem};
    std::string date;
    for (const Json& line : each.tries) {
      if (line.value("estimated", false)) continue;
      date = std::max(date, text_of(line, "measured_at").substr(0, 10));
      Trial& trial = search.trials.emplace_back();
      trial.config = text_of(line, "config");
      trial.measurement.status = parse_status(text_of(line, "status"));
      trial.measurement.time_us = number_of(line, "time_us");
    }
    search.note = fmt::format("{}, {}", gpu_of_class(each.device_class), date);
    if (!search.trials.empty()) searches.push_back(std::move(search));
  }
  if (searches.empty()) {
    refuse(kInvalidArgument,
           "nothing was measured for a problem that matches \"{}\": see attnforge cache ls, or "
           "tune it",
           a.filter_text());
  }
  for (const std::string& path : draw(landscape_pictures(searches, a.axes), a.folder))
    write_out(fmt::format("{}\n", printable(path)));
  return kExitOk;
}

int run_stats(const CacheArguments& a) {
  const CacheStats s = cache_stats(a.path);
  if (a.json) {
    Json json{{"attnforge", kVersion}};
    json.update(ATTNFORGE_JSON(s, path, file_bytes, schema_version, problems, device_classes, tries,
                               cubins, cubin_bytes, journal_mode, healthy, health));
    print_json(json);
  } else {
    const auto row = [](const char* name, const auto& value) {
      write_out(fmt::format("{:<16}{}\n", name, value));
    };
    row("file", printable(s.path));
    row("size", fmt::format("{:.1f} KiB", static_cast<double>(s.file_bytes) / 1024));
    row("schema", s.schema_version);
    row("journal", s.journal_mode);
    row("problems", s.problems);
    row("GPU classes", s.device_classes);
    row("tries", s.tries);
    row("cubins", fmt::format("{} ({:.1f} KiB compressed)", s.cubins,
                              static_cast<double>(s.cubin_bytes) / 1024));
    row("health", s.healthy ? green("ok") : red(printable(s.health)));
  }
  return s.healthy ? kExitOk : kExitFailed;
}

int run_verify(const CacheArguments& a) {
  const std::vector<std::string> faults = cache_verify(a.path);
  if (a.json) {
    print_json({{"attnforge", kVersion}, {"faults", faults}});
  } else if (faults.empty()) {
    write_out(fmt::format("{}\n", green("ok")));
  } else {
    for (const std::string& fault : faults) write_out(fmt::format("{}\n", red(fault)));
    write_out(
        "What can be read is kept by attnforge cache export. The next look-up or write that meets "
        "the damage sets the file aside and begins a new one with all that is sound.\n");
  }
  return faults.empty() ? kExitOk : kExitFailed;
}

int run_export(const CacheArguments& a) {
  std::vector<std::string> left_out;
  if (a.file == "-") {
    cache_export(a.path, std::cout, a.export_filter, &left_out);
    warn_of(left_out);
    std::cout.flush();
    if (!std::cout) refuse_file("standard output", "written");
    return kExitOk;
  }
  // The database first: a mistyped --cache must not leave an empty file behind.
  std::ostringstream text;
  const int lines = cache_export(a.path, text, a.export_filter, &left_out);
  warn_of(left_out);
  write_text(a.file, text.str());
  write_out(fmt::format("{} written to {}\n", counted(lines, "line", "lines"), printable(a.file)));
  return kExitOk;
}

int run_import(const CacheArguments& a) {
  const bool standard = a.file == "-";
  errno = 0;
  std::ifstream file;
  if (!standard) file.open(a.file, std::ios::binary);
  if (!file) refuse_file(a.file, "read");
  write_out(fmt::format("{} taken from {}\n",
                        counted(cache_import(a.path, standard ? std::cin : file), "line", "lines"),
                        standard ? "standard input" : printable(a.file)));
  return kExitOk;
}

int run_clear(const CacheArguments& a) {
  const std::string filter = a.filter_text();
  if (filter.empty() && !a.all) {
    refuse(kInvalidArgument,
           "cache clear needs a filter (see attnforge cache ls), or --all for everything");
  }
  if (!filter.empty() && a.all) {
    refuse(kInvalidArgument, "cache clear takes a filter (\"{}\") or --all, not both", filter);
  }
  const int deleted = cache_clear(a.path, filter, a.cubins);
  write_out(fmt::format("{} {} deleted\n", deleted, a.cubins ? "cubins" : "tries"));
  return kExitOk;
}

}  // namespace

Verb add_cache(Command& program) {
  auto arguments = std::make_shared<CacheArguments>();
  CacheArguments& a = *arguments;
  Command& verb = *program.add_subcommand(
      "cache", "Look into the database of winners, carry it around, clear it");
  verb.require_subcommand(1);
  verb.footer(kCacheFooter);

  using Action = int (*)(const CacheArguments&);
  std::vector<std::pair<Command*, Action>> actions;
  const auto add = [&](const char* name, const char* help, Action action, bool with_filter) {
    Command* sub = verb.add_subcommand(name, help);
    if (with_filter) add_value(*sub, "filter FILTER", a.filter, "Part of a problem's text");
    add_cache_option(*sub, a.path);
    sub->footer(kCacheFooter);
    actions.emplace_back(sub, action);
    return sub;
  };
  Command* ls = add("ls", "The winner of each problem and GPU class", run_ls, true);
  Command* show = add("show", "Every try, best first", run_show, true);
  Command* plot = add("plot", "Draw the tuning landscapes of problems (gnuplot)", run_plot, true);
  Command* stats = add("stats", "Size and health of the file", run_stats, false);
  Command* verify = add("verify", "Every page, index, row and checksum; says what is wrong",
                        run_verify, false);
  Command* clear = add("clear", "Delete tries, or only the compiled code", run_clear, true);
  Command* export_ = add("export", "Write measurements as lines of JSON", run_export, false);
  Command* import = add("import", "Merge the lines of an export; nothing is lost or doubled",
                        run_import, false);

  for (Command* sub : {ls, show, stats, verify}) sub->add_flag("--json", a.json, "As JSON");
  for (Command* sub : {ls, show}) sub->add_flag("--full", a.full, kFullHelp);
  add_number(*show, "--top N", a.top, "How many tries of each problem; 0: all");
  add_value(*plot, "--out FOLDER", a.folder, "Where the pictures go; default: pictures");
  add_value(*plot, "--axes X,Y", a.axes, "The two fields of configs; default: block_n,block_m");
  add_value(*export_, "file FILE", a.file, "Where to; - (default) is standard output");
  add_value(*export_, "--filter FILTER", a.export_filter, "Part of a problem's text");
  add_value(*import, "file FILE", a.file, "Where from; - (default) is standard input");
  clear->add_flag("--all", a.all, "Of all problems");
  clear->add_flag("--cubins", a.cubins, "Only the compiled code; the measurements stay");

  return [arguments, actions] {
    for (const auto& [sub, action] : actions) {
      if (sub->parsed()) return action(*arguments);
    }
    return int{kExitUsage};  // not reached: a subcommand is required
  };
}

}  // namespace attnforge::cli
