#include "cache/store.h"

#include <fmt/format.h>

#include <cstdlib>
#include <utility>

#include "cache/file/path.h"
#include "cache/file/scan.h"
#include "cache/file/set_aside.h"
#include "cache/file/trust.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

using Clock = std::chrono::steady_clock;

// The file has another schema version than when it was opened.
struct SchemaChanged {};

}  // namespace

Store::Store(std::string path, bool read_only, LogFunction log, const Waits& waits)
    : asked_path_(asked_cache_path(path)),
      read_only_(read_only),
      log_(std::move(log)),
      whole_waits_(waits) {
  const char* named = secure_getenv("ATTNFORGE_CACHE");
  const bool wished = !path.empty() || (named != nullptr && *named != '\0');
  if (!wished && asked_path_ == memory_path_) {
    this->log(
        LogLevel::kWarning,
        "there is no home folder ($HOME is not set and the account has none): results are kept "
        "in memory until the process ends. Name a file with ATTNFORGE_CACHE");
  }
  open();
}

bool Store::writable() const {
  const std::lock_guard lock(mutex_);
  return writable_;
}

std::string Store::not_kept() const {
  const std::lock_guard lock(mutex_);
  return not_kept_;
}

Waits Store::waits() const {
  const auto now = Clock::now();
  return {.read_ms = now < no_read_waits_until_ ? 0 : whole_waits_.read_ms,
          .write_ms = now < no_write_waits_until_ ? 0 : whole_waits_.write_ms};
}

// Who keeps readers out keeps writers out. What did not wait does not make the time longer.
void Store::waited_in_vain(bool reading) {
  const auto now = Clock::now();
  if (now < (reading ? no_read_waits_until_ : no_write_waits_until_)) return;
  no_write_waits_until_ = now + std::chrono::milliseconds(whole_waits_.write_ms);
  if (reading) no_read_waits_until_ = no_write_waits_until_;
}

bool Store::is_damage(const SqliteError& error) {
  if (in_memory_) return false;
  if (error.corrupt()) return true;
  // A flipped bit in the text of the schema leaves a file that SQLite finds sound, with a column or
  // a rule that nobody wrote.
  return (error.code() == SQLITE_ERROR || error.code() == SQLITE_CONSTRAINT) &&
         !has_whole_schema(*database_);
}

void Store::open(std::string aside, std::string damage) {
  database_.reset();
  retry_file_ = false;
  if (asked_path_ == memory_path_) {
    in_memory_ = true;
    database_.emplace(open_memory());
    writable_ = true;
    return;
  }
  for (int attempt = 0;; ++attempt) {
    try {
      Opened opened = open_file(asked_path_, read_only_ ? OpenMode::kRead : OpenMode::kCreate, log_,
                                waits());
      database_.emplace(std::move(opened.database));
      writable_ = opened.writable;
      in_memory_ = said_in_memory_ = false;
      not_kept_ = writable_ ? "" : opened.why_not;
      if (!aside.empty())
        log(LogLevel::kWarning, "{} is damaged ({}): renamed to {}, a new file is begun{}",
            asked_path_, damage, aside, save_from(aside));
      if (!writable_ && !read_only_)
        log(LogLevel::kWarning, "{}: it is used, new results are not stored", not_kept_);
      said_read_only_ = !writable_ && !read_only_;
      return;
    } catch (const SqliteError& error) {
      if (!error.corrupt() || read_only_ || attempt > 0) {
        retry_file_ = error.busy();
        if (retry_file_) waited_in_vain(true);
        return go_on_in_memory(error.what());
      }
      const SetAside done = set_aside(real_path(asked_path_),
                                      [&] { return cannot_be_opened(asked_path_); });
      if (!done.failure.empty())
        return go_on_in_memory(fmt::format("damaged: {}; {}", error.what(), done.failure));
      aside = done.renamed_to;
      damage = error.what();
    } catch (const Error& error) {
      return go_on_in_memory(error.what());
    }
  }
}

void Store::go_on_in_memory(const std::string& reason) {
  not_kept_ = fmt::format("{} cannot be used ({})", asked_path_, reason);
  if (!std::exchange(said_in_memory_, true))
    log(LogLevel::kWarning, "{}: results are kept in memory until the process ends{}", not_kept_,
        retry_file_ ? ", or until it can be written" : "");
  in_memory_ = true;
  database_.emplace(open_memory());
  writable_ = true;
}

void Store::replace_damaged_file(const std::string& damage) {
  const SetAside done = set_aside(real_path(asked_path_), [&] {
    const bool is_the_damaged_one = !database_->moved();
    // Before the rename: the last connection of a WAL file deletes the WAL by its name.
    database_.reset();
    return is_the_damaged_one;
  });
  if (done.failure.empty()) return open(done.renamed_to, damage);
  database_.reset();
  go_on_in_memory(fmt::format("damaged: {}; {}", damage, done.failure));
  save_from(real_path(asked_path_));
}

std::string Store::save_from(const std::string& path) {
  try {
    Database from(path, SQLITE_OPEN_READWRITE);  // an unfinished transaction is undone first
    const Salvaged saved = salvage(from, *database_);
    return fmt::format("; {} could be saved from the damaged one", saved.text());
  } catch (const std::exception& error) {
    return fmt::format("; nothing could be saved from the damaged one: {}", error.what());
  }
}

void Store::try_file_again() {
  Database memory = std::move(*database_);
  open();
  if (in_memory_) {
    database_.emplace(std::move(memory));
    return;
  }
  try {
    log(LogLevel::kInfo, "{} can be used now: {} went from memory into it", asked_path_,
        salvage(memory, *database_).text());
  } catch (const SqliteError& error) {
    log(LogLevel::kWarning, "what was kept in memory could not be stored in {}: {}", asked_path_,
        error.what());
  }
}

void Store::become_read_only(const std::string& reason) {
  writable_ = false;
  said_read_only_ = true;
  not_kept_ = fmt::format("{} cannot be written ({})", path(), reason);
  log(LogLevel::kWarning, "{}: new results are not stored", not_kept_);
}

void Store::run_read(std::string_view what, const std::function<void(Database&)>& look_up,
                     const std::function<void()>& miss) {
  const std::lock_guard lock(mutex_);
  for (int attempt = 0;; ++attempt) {
    std::string failure;
    try {
      database_->wait_for_locks(waits().read_ms);
      look_up(*database_);
      no_read_waits_until_ = {};
      return;
    } catch (const SqliteError& error) {
      miss();
      if (error.busy()) waited_in_vain(true);
      if (attempt == 0 && writable_ && is_damage(error)) {
        replace_damaged_file(error.what());
        continue;  // what could be saved may hold the answer
      }
      failure = error.what();
    } catch (const std::exception& error) {
      miss();
      failure = error.what();
    }
    log(LogLevel::kWarning, "{} in {} failed and counts as a miss: {}", what, path(), failure);
    return;
  }
}

void Store::write_once(const std::function<void(Database&)>& change) {
  database_->wait_for_locks(waits().write_ms);
  WriteTransaction transaction(*database_);
  {
    Query version = database_->query("PRAGMA user_version");
    if (!version.step() || version.integer(0) != kSchemaVersion) throw SchemaChanged{};
  }
  change(*database_);
  transaction.commit();
  no_read_waits_until_ = no_write_waits_until_ = {};
}

void Store::write(std::string_view what, const std::function<void(Database&)>& change) {
  const std::lock_guard lock(mutex_);
  if (retry_file_) try_file_again();
  for (int attempt = 0;; ++attempt) {
    if (!writable_) {
      if (!std::exchange(said_read_only_, true))
        log(LogLevel::kInfo, "{} is open for reading only: new results are not stored", path());
      return;
    }
    try {
      write_once(change);
      return;
    } catch (const SchemaChanged&) {
      if (attempt > 0)
        throw_error(ErrorCode::kCache, "{}: the schema of {} keeps changing", what, path());
      open();  // goes on in memory if the schema is another
    } catch (const SqliteError& error) {
      if (attempt == 0 && error.moved()) {
        log(LogLevel::kWarning, "{} was renamed or deleted by somebody else: a new file is begun",
            path());
        open();
        continue;
      }
      if (attempt == 0 && is_damage(error)) {
        replace_damaged_file(error.what());
        continue;
      }
      if (error.read_only()) return become_read_only(error.what());
      if (error.disk_full())
        throw_error(
            ErrorCode::kCache,
            "{} failed: no space is left for {} (disk full, quota or file size limit: {}); nothing "
            "of it was stored. Free space, or name a file on another disk (ATTNFORGE_CACHE)",
            what, path(), error.what());
      if (error.busy()) {
        const double waited_s = waits().write_ms / 1000.0;
        waited_in_vain(false);
        throw_error(ErrorCode::kCache,
                    "{} failed: another process {} {} locked{}; nothing of it was stored. Try "
                    "again, or find that process (fuser {})",
                    what, waited_s > 0 ? "has kept" : "still keeps", path(),
                    waited_s > 0 ? fmt::format(" for {} s", waited_s) : "", path());
      }
      if (error.code() == SQLITE_CONSTRAINT)
        throw_error(ErrorCode::kInternal, "{} in {} broke a rule of the schema: {}", what, path(),
                    error.what());
      throw_error(ErrorCode::kCache, "{} in {} failed: {}; nothing of it was stored", what, path(),
                  error.what());
    }
  }
}

}  // namespace attnforge
