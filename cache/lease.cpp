// lease.cpp - Cache: one process tunes a problem, the others know. A lease is a row that expires,
// so that no database lock is held for the minutes of a search.
#include <algorithm>
#include <chrono>

#include "attnforge/error.h"
#include "cache/cache.h"
#include "cache/file/process.h"
#include "cache/store.h"

namespace attnforge {
namespace {

// No lease is longer, so an expiry further away is a clock that was wrong, and counts as passed.
constexpr double kLongestSeconds = 24 * 3600.0;

constexpr const char* kHolder = R"sql(
SELECT owner, host, boot_id, pid_namespace, pid, pid_start, expires_at
FROM leases WHERE problem = ?1 AND device_class = ?2
)sql";

constexpr const char* kTake = R"sql(
INSERT OR REPLACE INTO leases
  (problem, device_class, owner, host, boot_id, pid_namespace, pid, pid_start, expires_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
)sql";

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// Whether another process, which may still be at work, has the lease.
bool held_by_other(Database& database, std::string_view problem, std::string_view device_class,
                   const std::string& owner) {
  Query query = database.query(kHolder, problem, device_class);
  if (!query.step() || query.text(0) == owner) return false;
  const double left = query.real(6) - now_seconds();
  if (left <= 0 || left > kLongestSeconds) return false;
  return !is_dead({.host = query.text(1),
                   .boot_id = query.text(2),
                   .pid_namespace = query.text(3),
                   .pid = query.integer(4),
                   .start = query.integer(5)});
}

void take(Database& database, std::string_view problem, std::string_view device_class,
          const std::string& owner, double seconds) {
  const ProcessName self = this_process();
  database
      .query(kTake, problem, device_class, owner, self.host, self.boot_id, self.pid_namespace,
             self.pid, self.start, now_seconds() + std::clamp(seconds, 0.0, kLongestSeconds))
      .run();
}

}  // namespace

bool Cache::acquire_lease(std::string_view problem, std::string_view device_class, double seconds) {
  // Waiting processes ask often: without the write lock first.
  const bool taken = store_->read("look-up of a lease", [&](Database& database) {
    return held_by_other(database, problem, device_class, owner_);
  });
  if (taken) return false;
  bool acquired = false;
  try {
    store_->write("taking a lease", [&](Database& database) {
      acquired = !held_by_other(database, problem, device_class, owner_);
      if (acquired) take(database, problem, device_class, owner_, seconds);
    });
  } catch (const Error& error) {
    store_->log(LogLevel::kWarning, "{}", error.what());
    return true;
  }
  if (!store_->writable()) return true;
  if (acquired) *may_hold_leases_ = true;
  return acquired;
}

void Cache::release_lease(std::string_view problem, std::string_view device_class) {
  try {
    store_->write("releasing a lease", [&](Database& database) {
      constexpr const char*
          kRemove = "DELETE FROM leases WHERE problem = ?1 AND device_class = ?2 AND owner = ?3";
      database.query(kRemove, problem, device_class, owner_).run();
    });
  } catch (const Error& error) {
    store_->log(LogLevel::kWarning, "{}", error.what());  // it expires by itself
  }
}

Cache::~Cache() {
  if (!may_hold_leases_ || !*may_hold_leases_) return;
  try {
    store_->write("releasing leases", [&](Database& database) {
      database.query("DELETE FROM leases WHERE owner = ?1", owner_).run();
    });
  } catch (const std::exception&) {
    // They expire by themselves, and this process is about to be seen as gone.
  }
}

}  // namespace attnforge
