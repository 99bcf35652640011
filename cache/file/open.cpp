#include "cache/file/open.h"

#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <string_view>
#include <system_error>

#include "cache/file/journal.h"
#include "cache/file/network.h"
#include "cache/file/trust.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

FileState state_in_transaction(Database& database) {
  const std::int64_t application = database.integer("PRAGMA application_id");
  const std::int64_t version = database.integer("PRAGMA user_version");
  const std::int64_t tables = database.integer("SELECT count(*) FROM sqlite_master");
  if (application == 0 && version == 0 && tables == 0) return FileState::kEmpty;
  if (application != kApplicationId) return FileState::kForeign;
  return version == kSchemaVersion ? FileState::kCurrent : FileState::kOther;
}

// The first bytes of the file, zeros after its end. Through SQLite's own descriptor: to open and
// close another one would end the locks that this process has on the file.
struct Header {
  std::uintmax_t file_bytes = 0;
  std::array<unsigned char, 100> bytes{};

  // https://www.sqlite.org/fileformat.html, section 1.3
  bool is_sqlite() const {
    constexpr std::string_view kMagic("SQLite format 3\0", 16);
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), 16) == kMagic;
  }
  std::int64_t application_id() const {
    return std::int64_t{bytes[68]} << 24 | bytes[69] << 16 | bytes[70] << 8 | bytes[71];
  }
};

Header header_of(Database& database, const std::string& path) {
  Header header;
  std::error_code missing;  // SQLite itself calls a file of one byte empty
  const auto bytes = std::filesystem::file_size(path, missing);
  if (!missing) header.file_bytes = bytes;
  sqlite3_file* file = nullptr;
  sqlite3_file_control(database.handle(), "main", SQLITE_FCNTL_FILE_POINTER, &file);
  if (!file || !file->pMethods) return header;
  file->pMethods->xRead(file, header.bytes.data(), static_cast<int>(header.bytes.size()), 0);
  return header;
}

bool has_default_name(const std::string& path) {
  return std::filesystem::path(path).filename() == kDefaultFileName;
}

bool may_be_written(const Header& header, const std::string& path) {
  return header.file_bytes == 0 || header.is_sqlite() || has_default_name(path);
}

}  // namespace

FileState file_state(Database& database) {
  // A file that another process creates between two of these reads would look foreign.
  const ReadTransaction one_view(database);
  return state_in_transaction(database);
}

bool may_be_set_aside(const std::string& path) try {
  if (has_default_name(path)) return true;
  Database database(path, SQLITE_OPEN_READONLY);
  const Header header = header_of(database, path);
  return header.is_sqlite() && header.application_id() == kApplicationId;
} catch (const SqliteError&) {
  return false;
}

FileState make_current(Database& database, const Waits& waits) {
  FileState state = file_state(database);
  if (state != FileState::kEmpty) return state;
  database.wait_for_locks(waits.write_ms);
  {
    WriteTransaction transaction(database);
    state = state_in_transaction(database);  // another process may have been first
    if (state == FileState::kEmpty) {
      database.execute(kSchemaSql);
      database.execute(fmt::format("PRAGMA application_id = {}; PRAGMA user_version = {};",
                                   kApplicationId, kSchemaVersion));
    }
    transaction.commit();
  }
  database.wait_for_locks(waits.read_ms);
  return state == FileState::kEmpty ? FileState::kCurrent : state;
}

bool has_whole_schema(Database& database) try {
  Database fresh = open_memory();
  Query made = fresh.query("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL");
  while (made.step()) {
    Query there = database.query("SELECT sql FROM sqlite_master WHERE name = ?1", made.text(0));
    if (!there.step() || there.text(0) != made.text(1)) return false;
  }
  return true;
} catch (const SqliteError& error) {
  return !error.corrupt();
}

Opened open_file(const std::string& asked_path, OpenMode mode, const LogFunction& log,
                 const Waits& waits) {
  const std::string path = real_path(asked_path);
  int flags = SQLITE_OPEN_READONLY;
  if (mode == OpenMode::kReadWrite) flags = SQLITE_OPEN_READWRITE;
  if (mode == OpenMode::kCreate) flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  if (const std::string reason = not_a_file(path); !reason.empty())
    throw Error(ErrorCode::kCache, reason);
  // Before anything is put into a folder of others, also into one that is just being made.
  const auto require_trust = [&] {
    if (const std::string reason = distrust(path); !reason.empty())
      throw Error(ErrorCode::kCache, reason);
  };
  require_trust();
  std::string why_not = mode == OpenMode::kRead ? "" : network_objection(path);
  if (!why_not.empty()) {
    if (access(path.c_str(), F_OK) != 0) throw Error(ErrorCode::kCache, why_not);
    flags = SQLITE_OPEN_READONLY;
  } else if (mode == OpenMode::kCreate) {
    make_private_folder(path);
    require_trust();
    make_private_file(path);
  }
  Database database(path, flags);
  if (!may_be_written(header_of(database, path), path))
    throw_error(ErrorCode::kCache,
                "{} is not a SQLite database and is left as it is: name another file, or a new one "
                "(--cache, ATTNFORGE_CACHE)",
                path);
  database.wait_for_locks(waits.read_ms);

  // A write needs the folder too, for the journal.
  const bool writable = mode != OpenMode::kRead &&
                        sqlite3_db_readonly(database.handle(), "main") == 0 &&
                        access(folder_of(path).c_str(), W_OK) == 0;
  if (!writable && why_not.empty())
    why_not = fmt::format("{} or its folder is read-only", asked_path);
  if (writable) set_journal(database, path, log);
  switch (writable ? make_current(database, waits) : file_state(database)) {
    case FileState::kCurrent:
      return {std::move(database), writable, std::move(why_not)};
    case FileState::kOther:
      throw_error(ErrorCode::kCache,
                  "{} has schema version {}, this attnforge has {}: use the attnforge that made "
                  "it, or name another file (ATTNFORGE_CACHE)",
                  path, database.integer("PRAGMA user_version"), kSchemaVersion);
    case FileState::kForeign:
      throw_error(ErrorCode::kCache,
                  "{} is a SQLite database of another application (application_id {:#x}): name "
                  "another file (ATTNFORGE_CACHE)",
                  path, database.integer("PRAGMA application_id"));
    case FileState::kEmpty:
      break;
  }
  throw_error(ErrorCode::kCache,
              "{} is empty and cannot be written: make it and its folder writable", path);
}

Database open_memory() {
  Database database(":memory:", SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  make_current(database);
  return database;
}

}  // namespace attnforge
