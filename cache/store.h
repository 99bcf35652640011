// store.h - the database in use, with the rules for everything that can go wrong: what is a miss,
// what is retried in a new file, what goes on in memory, what is thrown.
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "attnforge/device.h"
#include "cache/file/database.h"
#include "cache/file/open.h"

namespace attnforge {

/// Thread-safe. Logs while it holds its mutex: the log function must not call back into the cache.
class Store {
 public:
  /// Opens a store as Cache's constructor says. Never throws for a file that cannot be used. After
  /// a wait for another process's lock that was in vain, nothing waits again for `waits.write_ms`:
  /// what the lock stops then fails or misses at once. A file that was locked when it was to be
  /// opened is tried again by each write, which then carries over what was kept in memory.
  Store(std::string path, bool read_only, LogFunction log, const Waits& waits = {});

  /// The file in use, ":memory:" after a fallback.
  const std::string& path() const { return in_memory_ ? memory_path_ : asked_path_; }

  /// Runs `look_up` and gives its result; a value-initialised one, and a log line, if the database
  /// fails. `look_up` runs again after a damaged file has been replaced, with what could be saved.
  /// Never throws.
  template <class LookUp>
  auto read(std::string_view what, LookUp&& look_up)
      -> decltype(look_up(std::declval<Database&>())) {
    decltype(look_up(std::declval<Database&>())) result{};
    run_read(
        what, [&](Database& database) { result = look_up(database); }, [&] { result = {}; });
    return result;
  }

  /// Runs `change` in one transaction. `change` may run twice: again after a file that was damaged
  /// or moved away has been replaced. In a read-only file nothing happens, with one log line in the
  /// life of the Store. Throws Error(kCache) when the disk is full or another process keeps the
  /// lock; then nothing of the change is stored.
  void write(std::string_view what, const std::function<void(Database&)>& change);

  bool writable() const;
  /// "" if what is written is kept where it was asked to be, else why not.
  std::string not_kept() const;
  template <class... Values>
  void log(LogLevel level, fmt::format_string<Values...> format, Values&&... values) const {
    if (log_) log_(level, "cache: " + fmt::format(format, std::forward<Values>(values)...));
  }

 private:
  void run_read(std::string_view what, const std::function<void(Database&)>& look_up,
                const std::function<void()>& miss);
  void write_once(const std::function<void(Database&)>& change);
  Waits waits() const;  // of the next statement
  void waited_in_vain(bool reading);
  bool is_damage(const SqliteError& error);
  /// `aside`: the file that it replaces, to save from; `damage`: what was wrong with that.
  void open(std::string aside = "", std::string damage = "");
  void go_on_in_memory(const std::string& reason);
  void replace_damaged_file(const std::string& damage);
  std::string save_from(const std::string& path);  // half a sentence for the log
  void try_file_again();
  void become_read_only(const std::string& reason);

  const std::string memory_path_ = ":memory:";
  const std::string asked_path_;
  const bool read_only_;
  const LogFunction log_;
  const Waits whole_waits_;
  mutable std::mutex mutex_;
  std::optional<Database> database_;
  std::atomic<bool> in_memory_ = false;
  bool writable_ = false;
  std::string not_kept_;  // of the file as it is now
  bool said_read_only_ = false;
  bool said_in_memory_ = false;
  bool retry_file_ = false;  // it was locked when it was to be opened
  std::chrono::steady_clock::time_point no_read_waits_until_, no_write_waits_until_;
};

}  // namespace attnforge
