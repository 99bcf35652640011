// verify.cpp - cache_verify of attnforge/cache.h, and the health that stats and doctor show.
#include "cache/verify.h"

#include <fmt/format.h>

#include "attnforge/cache.h"
#include "cache/admin.h"
#include "cache/file/scan.h"

namespace attnforge {
namespace {

constexpr int kMost = 100;

}  // namespace

std::vector<std::string> check_structure(Database& database, int most) {
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
  if (faults.size() > static_cast<std::size_t>(most)) faults.resize(static_cast<std::size_t>(most));
  return faults;
}

std::vector<std::string> check_everything(Database& database) {
  std::vector<std::string> faults = check_structure(database, kMost);
  scan_tries(database, "", faults);
  scan_searches(database, "", faults);
  scan_cubins(
      database, [](const CubinRow&) {}, faults);
  return faults;
}

std::vector<std::string> cache_verify(const std::string& path) {
  const std::string where = admin_path(path);
  return with_cache_errors(where, [&]() -> std::vector<std::string> {
    try {
      Opened opened = open_for_admin(path, OpenMode::kReadWrite);
      return check_everything(opened.database);
    } catch (const SqliteError& error) {
      if (!error.corrupt()) throw;
      return {error.what()};
    }
  });
}

}  // namespace attnforge
