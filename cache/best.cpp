// best.cpp - Cache: the look-up of a winner.
#include <exception>
#include <map>

#include "cache/cache.h"
#include "cache/rows.h"
#include "cache/store.h"

namespace attnforge {
namespace {

// Indexes only find ids here; the rows come from the table and must be of the problem and class
// that were asked for (indexed_try).

// Winners of searches that ended, highest rigor first; of each the newest row (a winner has a row
// for each digest).
constexpr const char* kFinished = R"sql(
SELECT t.id, s.rigor, s.winner FROM searches s
JOIN rigors r ON r.name = s.rigor
JOIN tries t ON t.problem_id = s.problem_id AND t.device_class_id = s.device_class_id
            AND t.config = s.winner
WHERE s.problem_id = ?1 AND s.device_class_id = ?2 AND r.rank >= ?3
ORDER BY r.rank DESC, t.measured_at DESC, t.id DESC
)sql";

// All good tries that were raced, or all that were not, fastest first, a page at a time: mostly the
// first row is the answer.
constexpr const char* kFastest = R"sql(
SELECT id FROM tries
WHERE problem_id = ?1 AND device_class_id = ?2 AND status = 'ok' AND estimated = 0
  AND (samples >= ?5) = ?6
ORDER BY time_us, config, id LIMIT ?3 OFFSET ?4
)sql";
constexpr int kFirstPage = 8;
constexpr int kLaterPages = 128;

constexpr const char* kOtherClasses = R"sql(
SELECT d.text FROM device_classes d NOT INDEXED
WHERE d.sm = ?2 AND d.text <> ?3
  AND EXISTS (SELECT 1 FROM tries t WHERE t.problem_id = ?1 AND t.device_class_id = d.id
              AND t.status = 'ok' AND t.estimated = 0)
ORDER BY d.text
)sql";

constexpr const char* kTries = R"sql(
SELECT id FROM tries WHERE problem_id = ?1 AND device_class_id = ?2
ORDER BY status <> 'ok', estimated, CASE WHEN estimated THEN estimate_us ELSE time_us END, config,
         id
)sql";

constexpr const char* kChosen = R"sql(
SELECT p.text, s.winner FROM searches s
JOIN rigors r ON r.name = s.rigor
JOIN problems p NOT INDEXED ON p.id = s.problem_id
WHERE s.device_class_id = ?1 AND s.winner <> ''
ORDER BY p.text, r.rank DESC
)sql";

bool is_good(const Try& attempt) {
  return attempt.measurement.status == Status::kOk && !attempt.estimated;
}

// Calls visit(try, row) for the rows of a group that `sql` finds (?1, ?2; then `values`) and that
// can be read; returns how many it found.
template <class Visit, class... Values>
int each_try(Database& database, std::string_view problem, std::string_view device_class,
             const char* sql, const Visit& visit, const Values&... values) {
  const ReadTransaction one_view(database);
  const auto of_problem = problem_id(database, problem);
  const auto of_class = of_problem ? device_class_id(database, device_class) : std::nullopt;
  if (!of_class) return 0;
  int rows = 0;
  for (Query query = database.query(sql, *of_problem, *of_class, values...); query.step(); ++rows)
    if (auto attempt = indexed_try(database, query.integer(0), problem, device_class))
      visit(std::move(*attempt), query);
  return rows;
}

std::vector<Winner> finished(Database& database, std::string_view problem,
                             std::string_view device_class, Rigor at_least) {
  std::vector<Winner> winners;
  const auto add = [&](Try&& attempt, const Query& row) {
    if (attempt.config != row.text(2)) index_is_damaged("tries");
    if (!is_good(attempt)) return;
    winners.push_back({.best = std::move(attempt),
                       .provenance = Provenance::kMeasured,
                       .rigor = parse_rigor(row.text(1))});
  };
  // rigors.rank in schema.sql is the enum's value.
  each_try(database, problem, device_class, kFinished, add, static_cast<int>(at_least));
  return winners;
}

struct Page {
  std::vector<Winner> winners;
  bool last = true;
};

Page fastest(Database& database, std::string_view problem, std::string_view device_class,
             bool raced, int size, int offset) {
  Page page;
  const auto add = [&](Try&& attempt, const Query&) {
    if (is_good(attempt))
      page.winners.push_back({.best = std::move(attempt), .provenance = Provenance::kMeasured});
  };
  page.last = each_try(database, problem, device_class, kFastest, add, size, offset, kRacedSamples,
                       raced) < size;
  return page;
}

using DigestOf = std::function<std::string(std::string_view)>;

// digest_of() renders a source: once a config, and a config that no family knows any more has none.
DigestOf once_each(const DigestOf& digest_of) {
  return [&digest_of, known = std::map<std::string, std::string, std::less<>>()](
             std::string_view config) mutable {
    const auto entry = known.find(config);
    if (entry != known.end()) return entry->second;
    std::string digest;
    try {
      digest = digest_of(config);
    } catch (const std::exception&) {
    }
    return known.emplace(config, std::move(digest)).first->second;
  };
}

struct Found {
  std::optional<Winner> current;  // with today's digest
  std::optional<Winner> stale;    // the best of the others that can still be rendered
};

using MayAnswer = std::function<bool(const Try& unchosen)>;

// True when the answer is found.
bool consider(Winner&& winner, const DigestOf& digests, const MayAnswer& may_answer, Found& found) {
  const std::string today = digests(winner.best.config);
  if (today.empty()) return false;
  const bool is_current = winner.best.digest == today;
  if (!is_current && found.stale) return false;
  if (!winner.rigor && may_answer && !may_answer(winner.best)) return false;
  (is_current ? found.current : found.stale) = std::move(winner);
  return is_current;
}

// Rows are fetched under the Store's lock, digests computed outside of it: a render may take a
// while, and no other process should wait for it.
Found look_up(Store& store, std::string_view problem, std::string_view device_class,
              std::optional<Rigor> at_least, const DigestOf& digests, const MayAnswer& may_answer) {
  Found found;
  for (Winner& winner : store.read("look-up of a winner", [&](Database& database) {
         return finished(database, problem, device_class, at_least.value_or(Rigor::kQuick));
       }))
    if (consider(std::move(winner), digests, may_answer, found)) return found;
  if (at_least) return found;

  for (const bool raced : {true, false}) {
    int size = kFirstPage;
    for (int offset = 0;; offset += size, size = kLaterPages) {
      Page page = store.read("look-up of a winner", [&](Database& database) {
        return fastest(database, problem, device_class, raced, size, offset);
      });
      for (Winner& winner : page.winners)
        if (consider(std::move(winner), digests, may_answer, found)) return found;
      if (page.last) break;
    }
  }
  return found;
}

}  // namespace

std::optional<Winner> Cache::best(
    std::string_view problem, const Current& current,
    const std::function<std::string(std::string_view config)>& digest_of,
    std::optional<Rigor> at_least, const MayAnswer& may_answer) {
  const DigestOf digests = once_each(digest_of);
  Found own = look_up(*store_, problem, current.device_class, at_least, digests, may_answer);
  if (own.current) {
    const auto same = [](const std::string& then, const std::string& now) {
      return now.empty() || then == now;
    };
    const Try& best = own.current->best;
    const bool same_software = same(best.driver, current.driver) && same(best.nvrtc, current.nvrtc);
    own.current->provenance = same_software ? Provenance::kMeasured : Provenance::kCompatible;
    return std::move(own.current);
  }
  if (own.stale) {
    own.stale->provenance = Provenance::kStale;
    return std::move(own.stale);
  }
  const auto others = store_->read("look-up of other GPUs", [&](Database& database) {
    std::vector<std::string> classes;
    const ReadTransaction one_view(database);
    const auto id = problem_id(database, problem);
    if (!id) return classes;
    Query query = database.query(kOtherClasses, *id, current.sm, current.device_class);
    while (query.step()) classes.push_back(query.text(0));
    return classes;
  });
  for (const std::string& other : others) {
    Found found = look_up(*store_, problem, other, at_least, digests, may_answer);
    if (!found.current) continue;
    found.current->provenance = Provenance::kNearDevice;
    return std::move(found.current);
  }
  return std::nullopt;
}

std::vector<Chosen> Cache::chosen(std::string_view device_class) {
  return store_->read("look-up of other winners", [&](Database& database) {
    std::vector<Chosen> found;
    const ReadTransaction one_view(database);
    const auto of_class = device_class_id(database, device_class);
    if (!of_class) return found;
    Query query = database.query(kChosen, *of_class);
    while (query.step()) {
      std::string problem = query.text(0);
      if (found.empty() || found.back().problem != problem)
        found.push_back({std::move(problem), query.text(1)});
    }
    return found;
  });
}

std::vector<Try> Cache::tries(std::string_view problem, std::string_view device_class) {
  return store_->read("look-up of tries", [&](Database& database) {
    std::vector<Try> found;
    each_try(database, problem, device_class, kTries,
             [&](Try&& attempt, const Query&) { found.push_back(std::move(attempt)); });
    return found;
  });
}

}  // namespace attnforge
