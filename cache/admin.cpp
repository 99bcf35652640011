// admin.cpp - list, stats and clear of attnforge/cache.h: for people, on a file that exists.
#include "cache/admin.h"

#include <fmt/format.h>

#include <filesystem>
#include <optional>
#include <system_error>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/rows.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

// What a search chose, else the fastest good try, else the model's favourite; whatever its digest:
// which one is today's is not known here.
constexpr const char* kBestOfGroup[] = {
    R"sql(
SELECT t.* FROM readable_tries t
JOIN searches s ON s.problem_id = t.problem_id AND s.device_class_id = t.device_class_id
               AND s.winner = t.config
JOIN rigors r ON r.name = s.rigor
WHERE t.problem_id = ?1 AND t.device_class_id = ?2 AND t.status = 'ok' AND t.estimated = 0
ORDER BY r.rank DESC, t.measured_at DESC, t.id DESC LIMIT 1
)sql",
    R"sql(
SELECT t.* FROM readable_tries t
WHERE t.problem_id = ?1 AND t.device_class_id = ?2 AND t.status = 'ok' AND t.estimated = 0
ORDER BY t.time_us, t.config, t.id LIMIT 1
)sql",
    R"sql(
SELECT t.* FROM readable_tries t
WHERE t.problem_id = ?1 AND t.device_class_id = ?2 AND t.status = 'ok' AND t.estimated = 1
ORDER BY t.estimate_us, t.config, t.id LIMIT 1
)sql"};

constexpr const char* kGroups = R"sql(
SELECT p.text, d.text, t.problem_id, t.device_class_id, count(*), sum(t.status <> 'ok')
FROM tries t JOIN problems p ON p.id = t.problem_id
JOIN device_classes d ON d.id = t.device_class_id
WHERE ?1 = '' OR instr(p.text, ?1) > 0
GROUP BY t.problem_id, t.device_class_id ORDER BY p.text, d.text
)sql";

constexpr const char* kClearCubinsOnly = R"sql(
DELETE FROM cubins WHERE ?1 = '' OR source_digest IN
  (SELECT digest FROM readable_tries WHERE instr(problem, ?1) > 0)
)sql";

// Cubins that no try knows come from plans that were never tuned: they go with everything only.
constexpr const char* kClearCubinsOfTries = R"sql(
DELETE FROM cubins WHERE ?1 = ''
  OR (source_digest IN (SELECT digest FROM readable_tries WHERE instr(problem, ?1) > 0)
      AND source_digest NOT IN (SELECT digest FROM readable_tries WHERE instr(problem, ?1) = 0))
)sql";

constexpr const char* kClearTries = R"sql(
DELETE FROM tries
WHERE ?1 = '' OR problem_id IN (SELECT id FROM problems WHERE instr(text, ?1) > 0)
)sql";

constexpr const char* kClearSearches = R"sql(
DELETE FROM searches
WHERE ?1 = '' OR problem_id IN (SELECT id FROM problems WHERE instr(text, ?1) > 0)
)sql";

constexpr const char* kClearProblems = "DELETE FROM problems WHERE ?1 = '' OR instr(text, ?1) > 0";

constexpr const char* kClearDeviceClasses = R"sql(
DELETE FROM device_classes WHERE id NOT IN (SELECT device_class_id FROM tries)
                             AND id NOT IN (SELECT device_class_id FROM searches)
)sql";

std::optional<Try> best_of_group(Database& database, std::int64_t problem,
                                 std::int64_t device_class) {
  for (const char* sql : kBestOfGroup) {
    Query query = database.query(sql);
    if (query.bind(1, problem).bind(2, device_class).step()) return read_try(query);
  }
  return std::nullopt;
}

bool has_cubin(Database& database, const std::string& digest) {
  Query query = database.query("SELECT 1 FROM cubins WHERE source_digest = ?1 LIMIT 1");
  return query.bind(1, digest).step();
}

std::int64_t size_on_disk(const std::string& path) {
  std::error_code missing;
  const auto bytes = fs::file_size(path, missing);
  const auto wal_bytes = fs::file_size(path + "-wal", missing);
  return static_cast<std::int64_t>(bytes) + (missing ? 0 : static_cast<std::int64_t>(wal_bytes));
}

// quick_check lists what is wrong, a row each; the first few say enough.
std::string health(Database& database) {
  std::string text;
  Query query = database.query("PRAGMA quick_check(5)");
  while (query.step()) text += (text.empty() ? "" : "; ") + query.text(0);
  return text;
}

}  // namespace

std::string admin_path(const std::string& path) {
  return path.empty() ? default_cache_path() : path;
}

Opened open_for_admin(const std::string& asked, OpenMode mode) {
  const std::string path = admin_path(asked);
  std::error_code failed;
  if (mode != OpenMode::kCreate && !fs::exists(path, failed))
    throw Error(
        ErrorCode::kCache,
        fmt::format("there is no database at {}: tune or import something first, or name the right "
                    "file (ATTNFORGE_CACHE)",
                    path));
  Opened opened = open_file(path, mode, {});
  opened.database.wait_for_locks(kWriteWaitMs);  // a person waits rather than being refused
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
  throw Error(ErrorCode::kCache, fmt::format("{}: {}: {}", path, error.what(), advice));
}

std::vector<CacheEntry> cache_list(const std::string& path, const std::string& filter) {
  return with_cache_errors(admin_path(path), [&] {
    Opened opened = open_for_admin(path, OpenMode::kReadWrite);
    Database& database = opened.database;
    const ReadTransaction one_view(database);
    std::vector<CacheEntry> entries;
    Query groups = database.query(kGroups);
    groups.bind(1, filter);
    while (groups.step()) {
      CacheEntry entry;
      entry.problem = groups.text(0);
      entry.device_class = groups.text(1);
      entry.tries = static_cast<int>(groups.integer(4));
      entry.failures = static_cast<int>(groups.integer(5));
      if (const auto best = best_of_group(database, groups.integer(2), groups.integer(3))) {
        entry.config = best->config;
        entry.digest = best->digest;
        entry.time_us = best->estimated ? best->estimate_us : best->measurement.time_us;
        entry.noise = best->measurement.noise;
        entry.has_cubin = has_cubin(database, best->digest);
        entry.estimated = best->estimated;
        entry.driver = best->driver;
        entry.nvrtc = best->nvrtc;
        entry.measured_at = best->measured_at;
      }
      entries.push_back(std::move(entry));
    }
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
    stats.health = health(database);
    stats.healthy = stats.health == "ok";
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

int cache_clear(const std::string& path, const std::string& filter, bool cubins_only) {
  const std::string where = admin_path(path);
  return with_cache_errors(where, [&] {
    Opened opened = open_for_admin(path, OpenMode::kReadWrite);
    if (!opened.writable)
      throw Error(ErrorCode::kCache,
                  fmt::format("{} or its folder is read-only: nothing was cleared", where));
    Database& database = opened.database;
    int deleted = 0;
    {
      WriteTransaction transaction(database);
      const auto run = [&](const char* sql) {
        Query query = database.query(sql);
        query.bind(1, filter).run();
        return database.changes();
      };
      if (cubins_only) {
        deleted = run(kClearCubinsOnly);
      } else {
        run(kClearCubinsOfTries);
        deleted = run(kClearTries);
        run(kClearSearches);
        run(kClearProblems);
        database.execute(kClearDeviceClasses);
      }
      transaction.commit();
    }
    // Gives the space back to the disk. Not worth an error: the rows are gone, and the space is
    // used again by later rows.
    sqlite3_exec(database.handle(), "VACUUM", nullptr, nullptr, nullptr);
    return deleted;
  });
}

}  // namespace attnforge
