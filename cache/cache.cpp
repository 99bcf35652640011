// cache.cpp - Cache: opening, and the writes of a search.
#include "cache/cache.h"

#include "cache/file/process.h"
#include "cache/rows.h"
#include "cache/store.h"
#include "generator/text/throw_error.h"

namespace attnforge {

Cache::Cache(const std::string& path, bool read_only, LogFunction log)
    : store_(std::make_unique<Store>(path, read_only, std::move(log))),
      owner_(random_name()),
      may_hold_leases_(std::make_unique<std::atomic<bool>>(false)) {}

Cache::Cache(Cache&&) noexcept = default;

Cache& Cache::operator=(Cache&& other) noexcept {
  // The other's end releases the leases of this one.
  store_.swap(other.store_);
  owner_.swap(other.owner_);
  may_hold_leases_.swap(other.may_hold_leases_);
  return *this;
}

const std::string& Cache::path() const { return store_->path(); }

std::string Cache::not_kept() const { return store_->not_kept(); }

void Cache::require_keeping(std::string_view what) {
  std::string failure;
  try {
    store_->write("a trial write", [](Database& database) {
      const std::string trial = random_name();
      database.query("INSERT INTO leases VALUES (?1, 'trial', 'trial', '', '', '', 0, 0, 0)", trial)
          .run();
      database.query("DELETE FROM leases WHERE problem = ?1", trial).run();
    });
    failure = not_kept();
  } catch (const Error& error) {
    failure = error.what();
  }
  if (!failure.empty()) throw_error(ErrorCode::kCache, "{} cannot be stored: {}", what, failure);
}

void Cache::put(const std::vector<Try>& tries) {
  if (tries.empty()) return;
  store_->write("storing tries", [&](Database& database) {
    for (const Try& attempt : tries) put_try(database, attempt, Conflict::kReplace);
  });
}

void Cache::finish(std::string_view problem, std::string_view device_class, Rigor rigor,
                   std::string_view winner_config) {
  const Search search{std::string(problem), std::string(device_class), rigor,
                      std::string(winner_config), ""};
  store_->write("storing the end of a search",
                [&](Database& database) { put_search(database, search, Conflict::kReplace); });
}

}  // namespace attnforge
