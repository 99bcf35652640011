// admin.h - what the functions of attnforge/cache.h share: opening a file that must exist, and
// SQLite's errors as ours.
#pragma once

#include <string>

#include "cache/file/open.h"

namespace attnforge {

/// `path`, or the default one for "".
std::string admin_path(const std::string& path);

/// Throws Error(kCache) if the file is missing (but for kCreate) or cannot be used, SqliteError if
/// it is damaged.
Opened open_for_admin(const std::string& path, OpenMode mode);

/// Throws Error(kCache) with what to do.
[[noreturn]] void throw_cache_error(const std::string& path, const SqliteError& error);

/// Throws Error(kCache), saying that nothing was `changed`, if the file cannot be written.
void require_writable(const Opened& opened, const char* changed);

/// Runs work(database) on the file at `path`; a SqliteError becomes an Error(kCache). Work that
/// writes says what was "cleared" or "imported".
template <class Work>
auto on_database(const std::string& path, const Work& work, OpenMode mode = OpenMode::kReadWrite,
                 const char* changed = nullptr) {
  try {
    Opened opened = open_for_admin(path, mode);
    if (changed != nullptr) require_writable(opened, changed);
    return work(opened.database);
  } catch (const SqliteError& error) {
    throw_cache_error(admin_path(path), error);
  }
}

}  // namespace attnforge
