// journal.h - which journal the database uses: a rollback journal, or WAL where the user wants it
// and safe.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "cache/file/database.h"

namespace attnforge {

struct JournalFacts {
  bool wal_asked = false;  // $ATTNFORGE_CACHE_WAL=1
  int sqlite_version = 0;  // sqlite3_libversion_number()
  bool local_file_system = false;
};

/// $ATTNFORGE_CACHE_WAL; false when it is unset, empty or 0. Throws Error(kInvalidArgument) if it
/// is not 0 or 1.
bool wal_asked_for();

/// "" if WAL may be used, else why not.
std::string wal_objection(const JournalFacts& facts);

/// Sets journal and syncing of a connection to the file at `path`. Takes no write lock unless the
/// file has to change from WAL to a rollback journal or back; if that is not possible now (other
/// processes have it open), goes on with what there is and says so. Throws SqliteError for a file
/// that is no database, Error(kInvalidArgument) as wal_asked_for().
void set_journal(Database& database, const std::string& path, const LogFunction& log);

}  // namespace attnforge
