// open.h - from a path to a database of the current schema: what a file is, creating it, bringing
// an older one up to date.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "cache/database.h"

namespace attnforge {

inline constexpr int kApplicationId = 0x41744667;  // "AtFg" in the file's header
inline constexpr int kSchemaVersion = 2;           // user_version of schema.sql

/// How long a statement waits for another process. A look-up then misses; a write then fails.
inline constexpr int kReadWaitMs = 5'000;
inline constexpr int kWriteWaitMs = 30'000;

enum class FileState {
  kEmpty,  // new, or no bytes
  kCurrent,
  kOlder,    // ours, can be migrated
  kNewer,    // ours, by a newer attnforge
  kForeign,  // somebody else's database
};

/// Reads only. Throws SqliteError, corrupt() if the file is no database.
FileState file_state(Database& database);

/// Makes an empty database current, brings an older one up to date, in one transaction; leaves
/// others alone. An up-to-date database is only read. Returns the state that it has then. Throws
/// SqliteError and changes nothing.
FileState make_current(Database& database);

enum class OpenMode {
  kRead,       // the file must exist and be current
  kReadWrite,  // the file must exist; migrated if older; opened for reading if it is current and
               // cannot be written
  kCreate,     // and made, with its folder, if missing
};

struct Opened {
  Database database;
  bool writable;
};

/// Opens the file at `path`. Throws SqliteError, or Error(kCache) for a file that is foreign,
/// newer, or older and not writable. Never renames or deletes anything.
Opened open_file(const std::string& path, OpenMode mode, const LogFunction& log);

/// A current database that lives as long as the object.
Database open_memory();

}  // namespace attnforge
