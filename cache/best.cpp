// best.cpp - Cache: the look-up of a winner.
#include <algorithm>
#include <exception>
#include <map>

#include "cache/cache.h"
#include "cache/impl.h"
#include "cache/rows.h"

namespace attnforge {
namespace {

// rigors.rank in schema.sql is the enum's value.
int rank(Rigor rigor) { return static_cast<int>(rigor); }

// Winners of searches that ended, highest rigor first; of each the newest row (a winner has a row
// for each digest).
constexpr const char* kFinished = R"sql(
SELECT s.rigor, t.* FROM readable_tries t
JOIN searches s ON s.problem_id = t.problem_id AND s.device_class_id = t.device_class_id
               AND s.winner = t.config
JOIN rigors r ON r.name = s.rigor
WHERE t.problem = ?1 AND t.device_class = ?2 AND r.rank >= ?3
  AND t.status = 'ok' AND t.estimated = 0
ORDER BY r.rank DESC, t.measured_at DESC, t.id DESC
)sql";

// All good tries, fastest first, a page at a time: mostly the first row is the answer.
constexpr const char* kFastest = R"sql(
SELECT t.rigor, t.* FROM readable_tries t
WHERE t.problem = ?1 AND t.device_class = ?2 AND t.status = 'ok' AND t.estimated = 0
ORDER BY t.time_us, t.config, t.id LIMIT ?3 OFFSET ?4
)sql";
constexpr int kFirstPage = 8;
constexpr int kLaterPages = 128;

constexpr const char* kOtherClasses = R"sql(
SELECT d.text FROM device_classes d JOIN problems p ON p.text = ?1
WHERE d.sm = ?2 AND d.text <> ?3
  AND EXISTS (SELECT 1 FROM tries t WHERE t.problem_id = p.id AND t.device_class_id = d.id
              AND t.status = 'ok' AND t.estimated = 0)
ORDER BY d.text
)sql";

constexpr const char* kTries = R"sql(
SELECT t.* FROM readable_tries t WHERE t.problem = ?1 AND t.device_class = ?2
ORDER BY t.status <> 'ok', t.estimated,
         CASE WHEN t.estimated THEN t.estimate_us ELSE t.time_us END, t.config, t.id
)sql";

Winner read_winner(const Query& row) {
  return {.best = read_try(row, 1), .fit = Fit::kExact, .rigor = parse_rigor(row.text(0))};
}

// digest_of() renders a source: once a config, and a config that no family knows any more has none.
class Digests {
 public:
  explicit Digests(const std::function<std::string(std::string_view)>& digest_of)
      : digest_of_(digest_of) {}
  const std::string& of(const std::string& config) {
    const auto [entry, is_new] = known_.try_emplace(config);
    if (is_new) {
      try {
        entry->second = digest_of_(config);
      } catch (const std::exception&) {
        entry->second.clear();
      }
    }
    return entry->second;
  }

 private:
  const std::function<std::string(std::string_view)>& digest_of_;
  std::map<std::string, std::string> known_;
};

struct Found {
  std::optional<Winner> current;  // with today's digest
  std::optional<Winner> stale;    // the best of the others that can still be rendered
};

// True when the answer is found.
bool consider(Winner&& winner, Digests& digests, Found& found) {
  const std::string& today = digests.of(winner.best.config);
  if (today.empty()) return false;
  if (winner.best.digest == today) {
    found.current = std::move(winner);
    return true;
  }
  if (!found.stale) found.stale = std::move(winner);
  return false;
}

// Rows are fetched under the Store's lock, digests computed outside of it: a render may take a
// while, and no other process should wait for it.
Found look_up(Store& store, std::string_view problem, std::string_view device_class,
              std::optional<Rigor> at_least, Digests& digests) {
  Found found;
  std::vector<Winner> rows = store.read("look-up of a winner", [&](Database& database) {
    std::vector<Winner> winners;
    Query query = database.query(kFinished);
    query.bind(1, problem)
        .bind(2, device_class)
        .bind(3, at_least ? rank(*at_least) : rank(Rigor::kQuick));
    while (query.step()) winners.push_back(read_winner(query));
    return winners;
  });
  for (Winner& winner : rows)
    if (consider(std::move(winner), digests, found)) return found;
  if (at_least) return found;

  int page = kFirstPage;
  for (int offset = 0;; offset += page, page = kLaterPages) {
    rows = store.read("look-up of a winner", [&](Database& database) {
      std::vector<Winner> winners;
      Query query = database.query(kFastest);
      query.bind(1, problem).bind(2, device_class).bind(3, page).bind(4, offset);
      while (query.step()) winners.push_back(read_winner(query));
      return winners;
    });
    const bool last = static_cast<int>(rows.size()) < page;
    for (Winner& winner : rows)
      if (consider(std::move(winner), digests, found)) return found;
    if (last) return found;
  }
}

}  // namespace

std::optional<Winner> Cache::best(
    std::string_view problem, const Current& current,
    const std::function<std::string(std::string_view config)>& digest_of,
    std::optional<Rigor> at_least) {
  Digests digests(digest_of);
  Found own = look_up(impl_->store, problem, current.device_class, at_least, digests);
  if (own.current) {
    const bool same = own.current->best.driver == current.driver &&
                      own.current->best.nvrtc == current.nvrtc;
    own.current->fit = same ? Fit::kExact : Fit::kCompatible;
    return std::move(own.current);
  }
  if (own.stale) {
    own.stale->fit = Fit::kStale;
    return std::move(own.stale);
  }
  const auto others = impl_->store.read("look-up of other GPUs", [&](Database& database) {
    std::vector<std::string> classes;
    Query query = database.query(kOtherClasses);
    query.bind(1, problem).bind(2, current.sm).bind(3, current.device_class);
    while (query.step()) classes.push_back(query.text(0));
    return classes;
  });
  for (const std::string& other : others) {
    Found found = look_up(impl_->store, problem, other, at_least, digests);
    if (!found.current) continue;
    found.current->fit = Fit::kOtherDevice;
    return std::move(found.current);
  }
  return std::nullopt;
}

std::vector<Try> Cache::tries(std::string_view problem, std::string_view device_class) {
  return impl_->store.read("look-up of tries", [&](Database& database) {
    std::vector<Try> found;
    Query query = database.query(kTries);
    query.bind(1, problem).bind(2, device_class);
    while (query.step()) found.push_back(read_try(query));
    return found;
  });
}

}  // namespace attnforge
