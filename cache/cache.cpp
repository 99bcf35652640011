// cache.cpp - Cache: opening, and the writes of a search.
#include "cache/cache.h"

#include "cache/file/process.h"
#include "cache/impl.h"
#include "cache/rows.h"
#include "generator/text/throw_error.h"

namespace attnforge {

Cache::Impl::Impl(const std::string& path, bool read_only, LogFunction log)
    : store(path, read_only, std::move(log)), owner(random_name()) {}

Cache::Cache(const std::string& path, bool read_only, LogFunction log)
    : impl_(std::make_unique<Impl>(path, read_only, std::move(log))) {}

Cache::~Cache() = default;
Cache::Cache(Cache&&) noexcept = default;
Cache& Cache::operator=(Cache&&) noexcept = default;

const std::string& Cache::path() const { return impl_->store.path(); }

std::string Cache::not_kept() const { return impl_->store.not_kept(); }

void Cache::require_keeping(std::string_view what) {
  std::string failure;
  try {
    impl_->store.write("a trial write", [](Database& database) {
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
  impl_->store.write("storing tries", [&](Database& database) {
    for (const Try& attempt : tries) put_try(database, attempt, Conflict::kReplace);
  });
}

void Cache::finish(std::string_view problem, std::string_view device_class, Rigor rigor,
                   std::string_view winner_config) {
  const Search search{std::string(problem), std::string(device_class), rigor,
                      std::string(winner_config), ""};
  impl_->store.write("storing the end of a search",
                     [&](Database& database) { put_search(database, search, Conflict::kReplace); });
}

}  // namespace attnforge
