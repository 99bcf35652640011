// clear.cpp - cache_clear of attnforge/cache.h: deletes rows and gives the space back, also where
// the disk is full.
#include "attnforge/cache.h"
#include "cache/admin.h"

namespace attnforge {
namespace {

// What a filter means is read from tables: a damaged index would delete another problem's rows.
constexpr const char* kClearCubinsOnly = R"sql(
DELETE FROM cubins NOT INDEXED WHERE ?1 = '' OR source_digest IN
  (SELECT digest FROM readable_tries WHERE instr(problem, ?1) > 0)
)sql";

// Cubins that no try knows come from plans that were never tuned: they go with everything only.
constexpr const char* kClearCubinsOfTries = R"sql(
DELETE FROM cubins NOT INDEXED WHERE ?1 = ''
  OR (source_digest IN (SELECT digest FROM readable_tries WHERE instr(problem, ?1) > 0)
      AND source_digest NOT IN (SELECT digest FROM readable_tries WHERE instr(problem, ?1) = 0))
)sql";

constexpr const char* kClearTries = R"sql(
DELETE FROM tries NOT INDEXED
WHERE ?1 = '' OR problem_id IN (SELECT id FROM problems NOT INDEXED WHERE instr(text, ?1) > 0)
)sql";

constexpr const char* kClearSearches = R"sql(
DELETE FROM searches
WHERE ?1 = '' OR problem_id IN (SELECT id FROM problems NOT INDEXED WHERE instr(text, ?1) > 0)
)sql";

constexpr const char*
    kClearProblems = "DELETE FROM problems NOT INDEXED WHERE ?1 = '' OR instr(text, ?1) > 0";

constexpr const char* kClearDeviceClasses = R"sql(
DELETE FROM device_classes NOT INDEXED WHERE id NOT IN (SELECT device_class_id FROM tries)
                             AND id NOT IN (SELECT device_class_id FROM searches)
)sql";

int delete_rows(Database& database, const std::string& filter, bool cubins_only) {
  WriteTransaction transaction(database);
  int deleted = 0;
  const auto run = [&](const char* sql) {
    database.query(sql, filter).run();
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
  return deleted;
}

// Runs `work`, again with the journal in memory if the disk is full: then there is no space for the
// journal of a deletion, nor for the copy that VACUUM makes. The price: a process that is killed
// just then leaves a damaged file, which the next one sets aside.
template <class Work>
auto with_any_disk(Database& database, Work&& work) {
  try {
    return work();
  } catch (const SqliteError& error) {
    if (!error.disk_full()) throw;
  }
  database.execute("PRAGMA journal_mode = MEMORY; PRAGMA temp_store = MEMORY;");
  return work();
}

}  // namespace

int cache_clear(const std::string& path, const std::string& filter, bool cubins_only) {
  const auto clear = [&](Database& database) {
    const int deleted = with_any_disk(database,
                                      [&] { return delete_rows(database, filter, cubins_only); });
    try {
      // Gives the space back to the disk.
      with_any_disk(database, [&] { database.execute("VACUUM"); });
    } catch (const SqliteError&) {
      // Not worth an error: the rows are gone, and later rows use the space.
    }
    return deleted;
  };
  return on_database(path, clear, OpenMode::kReadWrite, "cleared");
}

}  // namespace attnforge
