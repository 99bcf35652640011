#include "cache/file/scan.h"

#include <fmt/format.h>

#include <map>
#include <tuple>
#include <utility>

#include "attnforge/error.h"

namespace attnforge {
namespace {

// No table of ours grows to this id; a search for the end of damage stops there.
constexpr std::int64_t kGreatestId = std::int64_t{1} << 40;

// Rows of `sql` (first column the id, ascending; ?1 is the least one) until their end. Damage ends
// a query: it is begun again a little further on, and further each time that does not help.
template <class Take>
void each_row(Database& database, const char* sql, const char* what, LeftOut& left_out,
              Take&& take) {
  std::int64_t next = -kGreatestId, skip = 1;
  bool in_damage = false;
  while (next <= kGreatestId) {
    try {
      Query rows = database.query(sql, next);
      while (rows.step()) {
        const std::int64_t id = rows.integer(0);
        // Pages that lead back to earlier ones would never end.
        if (id < next) throw SqliteError(SQLITE_CORRUPT, 0, "the rows are out of order");
        take(id, rows);
        next = id + 1;
        skip = 1;
        in_damage = false;
      }
      return;
    } catch (const SqliteError& error) {
      if (!error.corrupt()) throw;
      if (!std::exchange(in_damage, true))
        left_out.push_back(fmt::format("{} after row {}: {}", what, next - 1, error.what()));
      next += skip;
      skip *= 2;
    }
  }
}

bool matches(std::string_view problem, std::string_view filter) {
  return problem.find(filter) != std::string_view::npos;
}

constexpr const char* kSearches[] = {R"sql(
SELECT p.text, d.text, s.rigor, s.winner, s.finished_at FROM searches s
LEFT JOIN problems p NOT INDEXED ON p.id = s.problem_id
LEFT JOIN device_classes d NOT INDEXED ON d.id = s.device_class_id
ORDER BY s.problem_id, s.device_class_id, s.rigor
)sql",
                                     R"sql(
SELECT p.text, d.text, s.rigor, s.winner, s.finished_at FROM searches s
LEFT JOIN problems p NOT INDEXED ON p.id = s.problem_id
LEFT JOIN device_classes d NOT INDEXED ON d.id = s.device_class_id
ORDER BY s.problem_id DESC, s.device_class_id DESC, s.rigor DESC
)sql"};

}  // namespace

std::vector<Try> scan_tries(Database& database, std::string_view filter, LeftOut& left_out) {
  std::vector<Try> tries;
  each_row(database, "SELECT * FROM readable_tries WHERE id >= ?1 ORDER BY id", "tries", left_out,
           [&](std::int64_t, const Query& row) {
             try {
               // One whose problem is lost may be of any.
               if (!row.null(1) && !matches(row.text(1), filter)) return;
               tries.push_back(read_try(row));
             } catch (const Error& error) {
               left_out.emplace_back(error.what());
             }
           });
  return tries;
}

std::vector<Search> scan_searches(Database& database, std::string_view filter, LeftOut& left_out) {
  std::map<std::tuple<std::string, std::string, Rigor>, Search> found;
  for (const char* sql : kSearches) {  // from the other end too, if damage ends the first
    try {
      Query rows = database.query(sql);
      while (rows.step()) {
        if (!rows.null(0) && !matches(rows.text(0), filter)) continue;
        try {
          if (rows.null(0) || rows.null(1))
            throw Error(ErrorCode::kCache, "its problem or GPU class is missing");
          Search search{rows.text(0), rows.text(1), parse_rigor(rows.text(2)), rows.text(3),
                        rows.text(4)};
          std::tuple key(search.problem, search.device_class, search.rigor);
          found.try_emplace(std::move(key), std::move(search));
        } catch (const Error& error) {
          left_out.push_back(fmt::format("a finished search: {}", error.what()));
        }
      }
      break;
    } catch (const SqliteError& error) {
      if (!error.corrupt()) throw;
      if (sql == kSearches[0])
        left_out.push_back(fmt::format("finished searches: {}", error.what()));
    }
  }
  std::vector<Search> searches;
  for (auto& [key, search] : found) searches.push_back(std::move(search));
  return searches;
}

void scan_cubins(Database& database, const std::function<void(const CubinRow&)>& take,
                 LeftOut& left_out) {
  each_row(database, "SELECT id FROM cubins NOT INDEXED WHERE id >= ?1 ORDER BY id", "cubins",
           left_out, [&](std::int64_t id, const Query&) {
             const CubinRow row = read_cubin_row(database, id);
             if (row.intact)
               take(row);
             else
               left_out.push_back(fmt::format("cubin {}: it does not match its checksum", id));
           });
}

std::string Salvaged::text() const {
  const auto counted = [](int count, const char* one, const char* many) {
    return fmt::format("{} {}", count, count == 1 ? one : many);
  };
  return fmt::format("{}, {} and {}", counted(tries, "try", "tries"),
                     counted(searches, "search", "searches"), counted(cubins, "cubin", "cubins"));
}

Salvaged salvage(Database& from, Database& to) {
  Salvaged result;
  LeftOut left_out;
  WriteTransaction transaction(to);
  for (const Try& attempt : scan_tries(from, "", left_out)) {
    put_try(to, attempt, Conflict::kMerge);
    ++result.tries;
  }
  for (const Search& search : scan_searches(from, "", left_out)) {
    put_search(to, search, Conflict::kMerge);
    ++result.searches;
  }
  const auto keep = [&](const CubinRow& row) {
    put_cubin_row(to, row);
    ++result.cubins;
  };
  scan_cubins(from, keep, left_out);
  transaction.commit();
  return result;
}

}  // namespace attnforge
