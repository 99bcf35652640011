// admin.cpp - list, stats and verify of attnforge/cache.h: for people, on a file that exists.
#include "cache/admin.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <system_error>
#include <tuple>
#include <utility>

#include "attnforge/cache.h"
#include "cache/file/network.h"
#include "cache/file/path.h"
#include "cache/file/scan.h"
#include "cache/file/trust.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFaultsShown = 5;

using Key = std::pair<std::string, std::string>;  // problem, GPU class

// What a search chose, else the fastest good try, else the model's favourite; whatever its digest:
// which one is today's is not known here.
bool better(const Try& a, const Try& b, const std::string& chosen) {
  const auto order = [&](const Try& t) {
    const bool is_chosen = !t.estimated && !chosen.empty() && t.config == chosen;
    return std::tuple(!is_chosen, t.estimated, t.estimated ? t.estimate_us : t.measurement.time_us,
                      t.config);
  };
  if (a.config == b.config && a.config == chosen && a.estimated == b.estimated)
    return a.measured_at > b.measured_at;  // the newest of a winner's digests
  return order(a) < order(b);
}

// The winner of the most rigorous search of each problem and GPU class.
std::map<Key, std::string> chosen_configs(const std::vector<Search>& searches) {
  std::map<Key, std::string> chosen;
  for (const Search& search : searches)  // by rigor
    if (!search.winner.empty()) chosen[{search.problem, search.device_class}] = search.winner;
  return chosen;
}

void fill_in_best(CacheEntry& entry, const Try& best, Database& database) {
  entry.config = best.config;
  entry.digest = best.digest;
  entry.time_us = best.estimated ? best.estimate_us : best.measurement.time_us;
  entry.noise = best.measurement.noise;
  entry.has_cubin = database
                        .query("SELECT 1 FROM cubins WHERE source_digest = ?1 LIMIT 1", best.digest)
                        .step();
  entry.estimated = best.estimated;
  entry.driver = best.driver;
  entry.nvrtc = best.nvrtc;
  entry.measured_at = best.measured_at;
}

// SQLite's own check of pages, rules, and of every index against its table, and that every row has
// those that it refers to. A sentence for each fault, 100 at most.
std::vector<std::string> check_structure(Database& database) {
  std::vector<std::string> faults;
  try {
    // Not quick_check: it looks into no index for the rows of its table, and an index that names a
    // wrong row is the worst that can happen here.
    Query check = database.query("PRAGMA integrity_check(100)");
    while (check.step())
      if (check.text(0) != "ok") faults.push_back(check.text(0));
    Query orphans = database.query(
        "SELECT \"table\", count(*), parent FROM pragma_foreign_key_check GROUP BY 1, 3");
    while (orphans.step())
      faults.push_back(fmt::format("{} rows of {} refer to rows of {} that are not there",
                                   orphans.integer(1), orphans.text(0), orphans.text(2)));
  } catch (const SqliteError& error) {
    if (!error.corrupt()) throw;
    faults.emplace_back(error.what());
  }
  if (faults.size() > 100) faults.resize(100);
  return faults;
}

std::int64_t size_on_disk(const std::string& path) {
  std::error_code missing;
  const auto bytes = fs::file_size(path, missing);
  const auto wal_bytes = fs::file_size(path + "-wal", missing);
  return static_cast<std::int64_t>(bytes) + (missing ? 0 : static_cast<std::int64_t>(wal_bytes));
}

}  // namespace

std::string admin_path(const std::string& path) { return asked_cache_path(path); }

Opened open_for_admin(const std::string& asked, OpenMode mode) {
  const std::string path = admin_path(asked);
  std::error_code failed;
  if (mode != OpenMode::kCreate && !fs::exists(path, failed))
    throw_error(ErrorCode::kCache,
                "there is no database at {}: tune or import something first, or name the right "
                "file (ATTNFORGE_CACHE)",
                path);
  Opened opened = open_file(path, mode, {});
  opened.database.wait_for_locks(Waits{}.write_ms);  // a person waits rather than being refused
  return opened;
}

void throw_cache_error(const std::string& path, const SqliteError& error) {
  std::string advice = "check the file, its folder and the disk";
  if (error.corrupt())
    advice =
        "it is damaged or no database: move it away, or let the next run do so; a new one is begun";
  if (error.disk_full()) advice = "free space on that disk; nothing was changed";
  if (error.busy())
    advice = fmt::format(
        "another process keeps it locked: try again, or find that process (fuser {})", path);
  if (error.read_only()) advice = "it or its folder cannot be written: check the permissions";
  throw_error(ErrorCode::kCache, "{}: {}: {}", path, error.what(), advice);
}

void require_writable(const Opened& opened, const char* changed) {
  if (!opened.writable)
    throw_error(ErrorCode::kCache, "{}: nothing was {}", opened.why_not, changed);
}

std::string cache_objection(const std::string& asked) {
  const std::string path = admin_path(asked);
  std::error_code failed;
  if (path == ":memory:") return "";
  try {
    const std::string real = real_path(path);
    if (std::string reason = not_a_file(real); !reason.empty()) return reason;
    if (!fs::exists(real, failed)) {
      std::string reason = distrust(real);
      if (reason.empty()) reason = network_objection(real);
      return reason.empty() ? cannot_be_made(real) : reason;
    }
    open_for_admin(path, OpenMode::kReadWrite);
  } catch (const Error& error) {
    return error.what();
  } catch (const SqliteError&) {
    // Damage and locks pass: the file is replaced, or tried again.
  }
  return "";
}

std::vector<CacheEntry> cache_list(const std::string& path, const std::string& filter,
                                   std::vector<std::string>* left_out) {
  return on_database(path, [&](Database& database) {
    const ReadTransaction one_view(database);
    LeftOut unread;
    std::map<Key, std::vector<Try>> groups;
    for (Try& each : scan_tries(database, filter, unread))
      groups[{each.problem, each.device_class}].push_back(std::move(each));
    const auto chosen = chosen_configs(scan_searches(database, filter, unread));
    std::vector<CacheEntry> entries;
    for (const auto& [key, tries] : groups) {
      CacheEntry entry;
      entry.problem = key.first;
      entry.device_class = key.second;
      entry.tries = static_cast<int>(tries.size());
      const auto of_search = chosen.find(key);
      const std::string winner = of_search == chosen.end() ? "" : of_search->second;
      const Try* best = nullptr;
      for (const Try& each : tries) {
        if (each.measurement.status != Status::kOk)
          ++entry.failures;
        else if (!best || better(each, *best, winner))
          best = &each;
      }
      if (best) fill_in_best(entry, *best, database);
      entries.push_back(std::move(entry));
    }
    if (left_out) *left_out = std::move(unread);
    return entries;
  });
}

CacheStats cache_stats(const std::string& path) {
  CacheStats stats;
  stats.path = admin_path(path);
  try {
    Opened opened = open_for_admin(path, OpenMode::kReadWrite);
    Database& database = opened.database;
    stats.file_bytes = size_on_disk(stats.path);
    stats.journal_mode = database.text("PRAGMA journal_mode");
    std::vector<std::string> faults = check_structure(database);
    faults.resize(std::min(faults.size(), kFaultsShown));
    stats.healthy = faults.empty();
    stats.health = faults.empty() ? "ok" : fmt::format("{}", fmt::join(faults, "; "));
    const ReadTransaction one_view(database);
    stats.schema_version = static_cast<int>(database.integer("PRAGMA user_version"));
    stats.problems = static_cast<int>(database.integer("SELECT count(*) FROM problems"));
    stats.device_classes = static_cast<int>(
        database.integer("SELECT count(*) FROM device_classes"));
    stats.tries = static_cast<int>(database.integer("SELECT count(*) FROM tries"));
    stats.cubins = static_cast<int>(database.integer("SELECT count(*) FROM cubins"));
    stats.cubin_bytes = database.integer(
        "SELECT coalesce(sum(length(code) + length(source)), 0) FROM cubins");
  } catch (const SqliteError& error) {
    if (!error.corrupt()) throw_cache_error(stats.path, error);
    stats.healthy = false;
    stats.health = error.what();
  }
  return stats;
}

std::vector<std::string> cache_verify(const std::string& path) try {
  Database database = open_for_admin(path, OpenMode::kReadWrite).database;
  std::vector<std::string> faults = check_structure(database);
  // Every row as it is read: words, numbers, the checksums of cubins.
  scan_tries(database, "", faults);
  scan_searches(database, "", faults);
  scan_cubins(
      database, [](const CubinRow&) {}, faults);
  return faults;
} catch (const SqliteError& error) {
  if (!error.corrupt()) throw_cache_error(admin_path(path), error);
  return {error.what()};
}

}  // namespace attnforge
