// journal.cpp - the choice of the journal. docs/CACHE_FORMAT.md gives the measurements behind it.
#include "cache/file/journal.h"

#include <fmt/format.h>

#include <cstdlib>
#include <string_view>

#include "cache/file/network.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

// From this version on, two connections that write and checkpoint at once cannot damage a WAL
// database.
constexpr int kSafeWalVersion = 3051003;

}  // namespace

std::string wal_objection(const JournalFacts& facts) {
  if (!facts.wal_asked) return "not asked for";
  if (facts.sqlite_version < kSafeWalVersion)
    return fmt::format(
        "SQLite {}.{}.{} can damage a WAL file when two processes write (fixed in 3.51.3)",
        facts.sqlite_version / 1000000, facts.sqlite_version / 1000 % 1000,
        facts.sqlite_version % 1000);
  if (!facts.local_file_system) return "the file is not on a local file system";
  return "";
}

bool wal_asked_for() {
  const char* value = secure_getenv("ATTNFORGE_CACHE_WAL");
  const std::string_view word = value ? value : "";
  if (!word.empty() && word != "0" && word != "1") {
    throw_error(ErrorCode::kInvalidArgument,
                "ATTNFORGE_CACHE_WAL={}: it is 1 (a write-ahead log) or 0; or unset it", word);
  }
  return word == "1";
}

void set_journal(Database& database, const std::string& path, const LogFunction& log) {
  const JournalFacts facts{.wal_asked = wal_asked_for(),
                           .sqlite_version = sqlite3_libversion_number(),
                           .local_file_system = on_local_file_system(path)};
  const std::string objection = wal_objection(facts);
  if (facts.wal_asked && !objection.empty() && log)
    log(LogLevel::kWarning, fmt::format("cache: ATTNFORGE_CACHE_WAL=1 is ignored: {}", objection));

  // TRUNCATE keeps the journal file from commit to commit: a commit costs no creation and no
  // deletion in the folder.
  const bool wal_now = database.text("PRAGMA journal_mode") == "wal";
  try {
    if (objection.empty()) {
      if (!wal_now) database.execute("PRAGMA journal_mode = WAL");
    } else {
      database.execute("PRAGMA journal_mode = TRUNCATE");
    }
  } catch (const SqliteError& error) {
    if (error.corrupt()) throw;
    if (log)
      log(LogLevel::kWarning, fmt::format("cache: {} keeps its journal mode {}: {}", path,
                                          wal_now ? "wal" : "truncate", error.what()));
  }
  database.execute("PRAGMA synchronous = NORMAL");
}

}  // namespace attnforge
