// store.cpp - opening with fall-backs, replacing damaged files, retrying.
#include "cache/store.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <filesystem>
#include <system_error>
#include <thread>
#include <utility>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/open.h"
#include "cache/rows.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

// Held while a damaged file is renamed, so that two processes that notice it together do not rename
// the new file too. A lock on the folder leaves no lock file behind. Where it is not to be had
// (NFS) the rename goes ahead without.
class FolderLock {
 public:
  explicit FolderLock(const std::string& path) {
    const std::string folder = fs::path(path).parent_path().string();
    descriptor_ = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (int tries = 0; descriptor_ >= 0 && tries < 100; ++tries) {
      if (flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }
  ~FolderLock() {
    if (descriptor_ >= 0) close(descriptor_);
  }
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_ = -1;
};

bool is_damaged(const std::string& path) {
  try {
    Database database(path, SQLITE_OPEN_READONLY);
    file_state(database);
    return false;
  } catch (const SqliteError& error) {
    return error.corrupt();
  }
}

// A newer attnforge has migrated the file since it was opened.
struct SchemaChanged {};

// "20250314T092653Z", and a number where two files are set aside within a second.
std::string name_to_set_aside(const std::string& path) {
  std::string stamp;
  for (const char c : utc_now())
    if (c != '-' && c != ':') stamp += c;
  std::string name = fmt::format("{}.corrupt-{}", path, stamp);
  std::error_code ignored;
  for (int i = 2; fs::exists(name, ignored); ++i)
    name = fmt::format("{}.corrupt-{}-{}", path, stamp, i);
  return name;
}

}  // namespace

Store::Store(std::string path, bool read_only, LogFunction log)
    : asked_path_(path.empty() ? default_cache_path() : std::move(path)),
      read_only_(read_only),
      log_(std::move(log)) {
  open();
}

void Store::log(LogLevel level, const std::string& message) const {
  if (log_) log_(level, "cache: " + message);
}

bool Store::writable() const {
  const std::lock_guard lock(mutex_);
  return writable_;
}

void Store::open() {
  database_.reset();
  in_memory_ = asked_path_ == memory_path_;
  if (in_memory_) {
    database_.emplace(open_memory());
    writable_ = true;
    return;
  }
  for (int attempt = 0;; ++attempt) {
    try {
      Opened opened = open_file(asked_path_, read_only_ ? OpenMode::kRead : OpenMode::kCreate,
                                log_);
      database_.emplace(std::move(opened.database));
      writable_ = opened.writable;
      if (!writable_ && !read_only_)
        log(LogLevel::kWarning,
            fmt::format("{} or its folder is read-only: it is used, new results are not stored",
                        asked_path_));
      said_read_only_ = !writable_ && !read_only_;
      return;
    } catch (const SqliteError& error) {
      if (error.corrupt() && !read_only_ && attempt == 0) {
        set_file_aside(error.what());
        continue;
      }
      return go_on_in_memory(error.what());
    } catch (const Error& error) {
      return go_on_in_memory(error.what());
    }
  }
}

void Store::go_on_in_memory(const std::string& reason) {
  log(LogLevel::kWarning,
      fmt::format("{} cannot be used ({}): results are kept in memory until the process ends",
                  asked_path_, reason));
  in_memory_ = true;
  database_.emplace(open_memory());
  writable_ = true;
}

void Store::set_file_aside(const std::string& reason) {
  const FolderLock lock(asked_path_);
  const bool somebody_else_did = database_ ? database_->moved() : !is_damaged(asked_path_);
  database_
      .reset();  // before the rename: the last connection of a WAL file deletes the WAL by its name
  if (somebody_else_did) return;

  const std::string aside = name_to_set_aside(asked_path_);
  std::error_code failed;
  fs::rename(asked_path_, aside, failed);
  if (failed) {
    log(LogLevel::kError, fmt::format("{} is damaged ({}) and cannot be renamed: {}", asked_path_,
                                      reason, failed.message()));
    return;
  }
  // A journal left behind would be rolled back into the new file.
  for (const char* suffix : {"-journal", "-wal", "-shm"}) {
    std::error_code ignored;
    fs::rename(asked_path_ + suffix, aside + suffix, ignored);
  }
  log(LogLevel::kWarning, fmt::format("{} is damaged ({}): renamed to {}, a new file is begun",
                                      asked_path_, reason, aside));
}

void Store::become_read_only(const std::string& reason) {
  writable_ = false;
  said_read_only_ = true;
  log(LogLevel::kWarning,
      fmt::format("{} cannot be written ({}): new results are not stored", path(), reason));
}

void Store::run_read(std::string_view what, const std::function<void(Database&)>& look_up,
                     const std::function<void()>& miss) {
  const std::lock_guard lock(mutex_);
  try {
    look_up(*database_);
    return;
  } catch (const SqliteError& error) {
    miss();
    if (error.corrupt() && writable_ && !in_memory_) {
      set_file_aside(error.what());
      open();
    } else {
      log(LogLevel::kWarning,
          fmt::format("{} in {} failed and counts as a miss: {}", what, path(), error.what()));
    }
  } catch (const std::exception& error) {
    miss();
    log(LogLevel::kWarning,
        fmt::format("{} in {} failed and counts as a miss: {}", what, path(), error.what()));
  }
}

void Store::write_once(const std::function<void(Database&)>& change) {
  struct LongWait {
    Database& database;
    explicit LongWait(Database& d) : database(d) { database.wait_for_locks(kWriteWaitMs); }
    ~LongWait() { database.wait_for_locks(kReadWaitMs); }
  };
  const LongWait wait(*database_);
  WriteTransaction transaction(*database_);
  {
    Query version = database_->query("PRAGMA user_version");
    if (!version.step() || version.integer(0) != kSchemaVersion) throw SchemaChanged{};
  }
  change(*database_);
  transaction.commit();
}

void Store::write(std::string_view what, const std::function<void(Database&)>& change) {
  const std::lock_guard lock(mutex_);
  for (int attempt = 0;; ++attempt) {
    if (!writable_) {
      if (!std::exchange(said_read_only_, true))
        log(LogLevel::kInfo,
            fmt::format("{} is open for reading only: new results are not stored", path()));
      return;
    }
    try {
      write_once(change);
      return;
    } catch (const SchemaChanged&) {
      if (attempt > 0)
        throw Error(ErrorCode::kCache,
                    fmt::format("{}: the schema of {} keeps changing", what, path()));
      open();  // goes on in memory if the schema is newer
    } catch (const SqliteError& error) {
      if (attempt == 0 && error.moved()) {
        log(LogLevel::kWarning,
            fmt::format("{} was renamed or deleted by somebody else: a new file is begun", path()));
        open();
        continue;
      }
      if (attempt == 0 && error.corrupt() && !in_memory_) {
        set_file_aside(error.what());
        open();
        continue;
      }
      if (error.read_only()) return become_read_only(error.what());
      if (error.disk_full())
        throw Error(
            ErrorCode::kCache,
            fmt::format("{} failed: no space is left for {} (disk full, quota or file size limit: "
                        "{}); nothing of it "
                        "was stored. Free space, or name a file on another disk (ATTNFORGE_CACHE)",
                        what, path(), error.what()));
      if (error.busy())
        throw Error(
            ErrorCode::kCache,
            fmt::format("{} failed: another process has kept {} locked for {} s; nothing of it was "
                        "stored. Try again, or find that process (fuser {})",
                        what, path(), kWriteWaitMs / 1000, path()));
      if (error.code() == SQLITE_CONSTRAINT)
        throw Error(ErrorCode::kInternal, fmt::format("{} in {} broke a rule of the schema: {}",
                                                      what, path(), error.what()));
      throw Error(ErrorCode::kCache, fmt::format("{} in {} failed: {}; nothing of it was stored",
                                                 what, path(), error.what()));
    }
  }
}

}  // namespace attnforge
