// open.cpp - opening, creating and migrating the file.
#include "cache/open.h"

#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

#include "attnforge/error.h"
#include "cache/journal.h"
#include "cache/rows.h"
#include "cache/sql_texts.h"

namespace attnforge {
namespace {

FileState state_in_transaction(Database& database) {
  const std::int64_t application = database.integer("PRAGMA application_id");
  const std::int64_t version = database.integer("PRAGMA user_version");
  const std::int64_t tables = database.integer("SELECT count(*) FROM sqlite_master");
  if (application == 0 && version == 0 && tables == 0) return FileState::kEmpty;
  if (application != kApplicationId || version < 1) return FileState::kForeign;
  if (version > kSchemaVersion) return FileState::kNewer;
  return version == kSchemaVersion ? FileState::kCurrent : FileState::kOlder;
}

void sm_of_device_class_function(sqlite3_context* context, int, sqlite3_value** values) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_value_text(values[0]));
  sqlite3_result_int(context, text ? sm_of_device_class(text) : 0);
}

void stamp(Database& database) {
  database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};",
                               kApplicationId, kSchemaVersion));
}

void migrate_from_1(Database& database) {
  sqlite3_create_function_v2(database.handle(), "sm_of_device_class", 1,
                             SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_DIRECTONLY, nullptr,
                             sm_of_device_class_function, nullptr, nullptr, nullptr);
  database.execute(kFrom1BeforeSql);
  database.execute(kSchemaSql);
  database.execute(kFrom1AfterSql);
  stamp(database);
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

FileState file_state(Database& database) {
  // A file that another process creates between two of these reads would look foreign.
  const ReadTransaction one_view(database);
  return state_in_transaction(database);
}

FileState make_current(Database& database) {
  FileState state = file_state(database);
  if (state != FileState::kEmpty && state != FileState::kOlder) return state;
  database.wait_for_locks(kWriteWaitMs);
  {
    WriteTransaction transaction(database);
    state = state_in_transaction(database);  // another process may have been first
    if (state == FileState::kEmpty) {
      database.execute(kSchemaSql);
      stamp(database);
    } else if (state == FileState::kOlder) {
      migrate_from_1(database);  // 1 is the only version before the current one
    }
    transaction.commit();
  }
  database.wait_for_locks(kReadWaitMs);
  return state == FileState::kEmpty || state == FileState::kOlder ? FileState::kCurrent : state;
}

Opened open_file(const std::string& path, OpenMode mode, const LogFunction& log) {
  int flags = SQLITE_OPEN_READONLY;
  if (mode == OpenMode::kReadWrite) flags = SQLITE_OPEN_READWRITE;
  if (mode == OpenMode::kCreate) {
    flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
    std::error_code ignored;  // what matters is whether the file can be opened
    std::filesystem::create_directories(folder_of(path), ignored);
  }
  Database database(path, flags);
  database.wait_for_locks(kReadWaitMs);

  // A write needs the folder too, for the journal.
  const bool writable = mode != OpenMode::kRead &&
                        sqlite3_db_readonly(database.handle(), "main") == 0 &&
                        access(folder_of(path).c_str(), W_OK) == 0;
  if (writable) set_journal(database, path, log);
  switch (writable ? make_current(database) : file_state(database)) {
    case FileState::kCurrent:
      return {std::move(database), writable};
    case FileState::kNewer:
      throw Error(ErrorCode::kCache,
                  fmt::format("{} has schema version {}, this attnforge knows up to {}: use a "
                              "newer attnforge, or another file "
                              "(ATTNFORGE_CACHE)",
                              path, database.integer("PRAGMA user_version"), kSchemaVersion));
    case FileState::kForeign:
      throw Error(ErrorCode::kCache, fmt::format("{} is a SQLite database of another application "
                                                 "(application_id {:#x}): name another file "
                                                 "(ATTNFORGE_CACHE)",
                                                 path, database.integer("PRAGMA application_id")));
    case FileState::kOlder:
      throw Error(
          ErrorCode::kCache,
          fmt::format("{} has the older schema version {} and cannot be brought up to date because "
                      "it or its folder is read-only: make both writable once",
                      path, database.integer("PRAGMA user_version")));
    case FileState::kEmpty:
      break;
  }
  throw Error(
      ErrorCode::kCache,
      fmt::format("{} is empty and cannot be written: make it and its folder writable", path));
}

Database open_memory() {
  Database database(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  make_current(database);
  return database;
}

}  // namespace attnforge
