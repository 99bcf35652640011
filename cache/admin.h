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

/// Runs `work`; a SqliteError becomes an Error(kCache) about `path`.
template <class Work>
auto with_cache_errors(const std::string& path, Work&& work) {
  try {
    return work();
  } catch (const SqliteError& error) {
    throw_cache_error(path, error);
  }
}

}  // namespace attnforge
