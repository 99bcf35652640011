// open.h - from a path to a database of the current schema: what a file is, and creating it.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "cache/file/database.h"

namespace attnforge {

inline constexpr int kApplicationId = 0x41744667;  // "AtFg" in the file's header
inline constexpr int kSchemaVersion = 1;           // user_version of schema.sql
inline constexpr const char* kDefaultFileName = "attnforge.db";

extern const char* const kSchemaSql;  // schema.sql; CMakeLists.txt makes the definition from it

/// How long a statement waits for another process. A look-up then misses; a write then fails.
struct Waits {
  int read_ms = 5'000;
  int write_ms = 30'000;
};

enum class FileState {
  kEmpty,  // new, or no bytes
  kCurrent,
  kOther,    // ours, of another schema version
  kForeign,  // another program's database
};

/// Reads only. Throws SqliteError, corrupt() if the file is no database.
FileState file_state(Database& database);

/// Makes an empty database current, in one transaction; leaves others alone. A current database is
/// only read. Returns the state that it has then. Throws SqliteError and changes nothing.
FileState make_current(Database& database, const Waits& waits = {});

/// Whether a damaged file may be renamed: it begins as a SQLite database with our application_id,
/// or is called attnforge.db. Anything else is another file, named by mistake.
bool may_be_set_aside(const std::string& path);

/// Whether every table, index and view of schema.sql stands in the file as it was made.
bool has_whole_schema(Database& database);

enum class OpenMode {
  kRead,       // the file must exist and be current
  kReadWrite,  // the file must exist; opened for reading if it cannot be written
  kCreate,     // and made, with its folder, if missing
};

struct Opened {
  Database database;
  bool writable;
  std::string why_not = "";  // it is not writable although that was asked for
};

/// Opens the file at `path`. Throws SqliteError, or Error(kCache) for a file that is no database,
/// that others could have written (trust.h), that is foreign or of another schema, and for one that
/// is to be made where several machines write (network.h); one that is there is then only read.
/// Never renames or deletes anything. Folders are made with mode 0700, the file with 0600.
Opened open_file(const std::string& path, OpenMode mode, const LogFunction& log,
                 const Waits& waits = {});

/// A current database that lives as long as the object.
Database open_memory();

}  // namespace attnforge
