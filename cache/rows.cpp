#include "cache/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <type_traits>

#include "attnforge/version.h"
#include "generator/text/throw_error.h"
#include "generator/text/utc.h"
#include "generator/text/utf8.h"

namespace attnforge {
namespace {

constexpr std::size_t kMaxDetailBytes = 4096;

// Compiler logs may hold anything; JSON and the sqlite3 shell want text.
std::string clean_detail(std::string_view detail) {
  std::string clean;
  for (std::size_t at = 0; at < detail.size();) {
    const std::size_t length = utf8_length(detail, at);
    if (clean.size() + std::max<std::size_t>(length, 1) > kMaxDetailBytes) break;
    if (length == 0) clean += '?';
    clean += detail.substr(at, length);
    at += std::max<std::size_t>(length, 1);
  }
  return clean;
}

// `by_text` finds the id in an index, `by_id` reads the text in the table: a query that does both
// would take the text from the index as well.
std::optional<std::int64_t> id_of(Database& database, const char* table, const char* by_text,
                                  const char* by_id, std::string_view text) {
  Query find = database.query(by_text, text);
  if (!find.step()) return std::nullopt;
  const std::int64_t id = find.integer(0);
  Query confirm = database.query(by_id, id);
  if (!confirm.step() || confirm.text(0) != text) index_is_damaged(table);
  return id;
}

/// Runs an insert of one row that returns its id.
std::int64_t new_id(Query&& insert) {
  insert.step();
  const std::int64_t id = insert.integer(0);
  insert.run();
  return id;
}

std::int64_t problem_row(Database& database, std::string_view text) {
  if (const auto id = problem_id(database, text)) return *id;
  return new_id(database.query("INSERT INTO problems (text) VALUES (?1) RETURNING id", text));
}

std::int64_t device_class_row(Database& database, std::string_view text) {
  if (const auto id = device_class_id(database, text)) return *id;
  return new_id(database.query("INSERT INTO device_classes (text, sm) VALUES (?1, ?2) RETURNING id",
                               text, sm_of_device_class(text)));
}

// A stored try of the same key would be overwritten: the index must not lead to another one.
void confirm_key(Database& database, std::int64_t problem, std::int64_t device_class,
                 std::string_view config, std::string_view digest) {
  Query find = database.query(
      "SELECT id FROM tries WHERE problem_id = ?1 AND device_class_id = ?2 AND config = ?3 "
      "AND digest = ?4",
      problem, device_class, config, digest);
  if (!find.step()) return;
  Query confirm = database.query(
      "SELECT problem_id, device_class_id, config, digest FROM tries NOT INDEXED WHERE id = ?1",
      find.integer(0));
  if (!confirm.step() || confirm.integer(0) != problem || confirm.integer(1) != device_class ||
      confirm.text(2) != config || confirm.text(3) != digest)
    index_is_damaged("tries");
}

constexpr const char* kInsertTry = R"sql(
INSERT INTO tries
  (problem_id, device_class_id, config, digest, family, rigor, estimate_us, estimated, status,
   time_us, noise, samples, max_error, clock_mhz, detail, driver, nvrtc, uuid, attnforge_version,
   measured_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20)
ON CONFLICT (problem_id, device_class_id, config, digest) DO UPDATE SET
  family = excluded.family, rigor = excluded.rigor, estimate_us = excluded.estimate_us,
  estimated = excluded.estimated, status = excluded.status, time_us = excluded.time_us,
  noise = excluded.noise, samples = excluded.samples, max_error = excluded.max_error,
  clock_mhz = excluded.clock_mhz, detail = excluded.detail, driver = excluded.driver,
  nvrtc = excluded.nvrtc, uuid = excluded.uuid, attnforge_version = excluded.attnforge_version,
  measured_at = excluded.measured_at
)sql";

// A search of less rigor that times a config against others, or finds that it is wrong, knows more
// of it than the search before: what it then reports is what plans find.
constexpr const char* kIfAsRigorous = R"sql(
WHERE (NOT excluded.estimated, (SELECT rank FROM rigors WHERE name = excluded.rigor))
   >= (NOT tries.estimated, (SELECT rank FROM rigors WHERE name = tries.rigor))
   OR (NOT excluded.estimated AND (excluded.status <> 'ok' OR excluded.samples >= ?21))
)sql";

constexpr const char* kIfGreater = R"sql(
WHERE (NOT excluded.estimated, (SELECT rank FROM rigors WHERE name = excluded.rigor),
       excluded.measured_at, excluded.status, excluded.time_us, excluded.noise, excluded.samples,
       coalesce(excluded.max_error, -1), excluded.clock_mhz, excluded.detail, excluded.estimate_us,
       excluded.family, excluded.driver, excluded.nvrtc, excluded.uuid, excluded.attnforge_version)
    > (NOT tries.estimated, (SELECT rank FROM rigors WHERE name = tries.rigor),
       tries.measured_at, tries.status, tries.time_us, tries.noise, tries.samples,
       coalesce(tries.max_error, -1), tries.clock_mhz, tries.detail, tries.estimate_us,
       tries.family, tries.driver, tries.nvrtc, tries.uuid, tries.attnforge_version)
)sql";

constexpr const char* kInsertSearch = R"sql(
INSERT INTO searches (problem_id, device_class_id, rigor, winner, finished_at)
VALUES (?1, ?2, ?3, ?4, ?5)
ON CONFLICT (problem_id, device_class_id, rigor) DO UPDATE SET
  winner = excluded.winner, finished_at = excluded.finished_at
)sql";

constexpr const char* kIfLater = R"sql(
WHERE (excluded.finished_at, excluded.winner) > (searches.finished_at, searches.winner)
)sql";

// Whole statements, which live as long as the program.
const char* try_sql(Conflict conflict) {
  static const std::string replace = std::string(kInsertTry) + kIfAsRigorous;
  static const std::string merge = std::string(kInsertTry) + kIfGreater;
  return (conflict == Conflict::kReplace ? replace : merge).c_str();
}

const char* search_sql(Conflict conflict) {
  static const std::string merge = std::string(kInsertSearch) + kIfLater;
  return conflict == Conflict::kReplace ? kInsertSearch : merge.c_str();
}

// "" for a try that can be one.
std::string wrong_with(const Try& attempt) {
  const Measurement& m = attempt.measurement;
  if (attempt.problem.empty()) return "it has no problem";
  if (attempt.device_class.empty()) return "it has no GPU class";
  if (attempt.config.empty()) return "it has no config";
  if (m.samples < 0) return fmt::format("it has {} samples", m.samples);
  if (m.status == Status::kOk && !attempt.estimated && !(m.time_us > 0 && std::isfinite(m.time_us)))
    return fmt::format("a measured kernel takes more than no time, not {} us", m.time_us);
  return "";
}

template <class Member>
void read(const Query& row, int column, Member& member) {
  row.read(column, member);
}
void read(const Query& row, int column, Rigor& rigor) { rigor = parse_rigor(row.text(column)); }
void read(const Query& row, int column, Status& status) { status = parse_status(row.text(column)); }

template <class Member>
void bind(Query& query, const Member& member) {
  if constexpr (std::is_enum_v<Member>)
    query.bind(to_string(member));
  else
    query.bind(member);
}

/// Numbers and texts as the database holds them. A merge keeps an unknown date: today's would win
/// over the stored row every time.
Try as_stored(Try t, Conflict conflict) {
  Measurement& m = t.measurement;
  for (double* number : {&t.estimate_us, &m.time_us, &m.noise, &m.clock_mhz})
    if (!std::isfinite(*number)) *number = 0;
  if (!std::isfinite(m.max_error)) m.max_error = std::numeric_limits<double>::quiet_NaN();
  m.detail = clean_detail(m.detail);
  if (t.attnforge_version.empty()) t.attnforge_version = kVersion;
  if (t.measured_at.empty() && conflict == Conflict::kReplace) t.measured_at = utc_now();
  return t;
}

/// The number in a word such as sm_90a, 0 if the word is none.
int sm_of_word(std::string_view word) {
  if (!word.starts_with("sm_")) return 0;
  word.remove_prefix(3);
  int sm = 0;
  const char* const end = std::from_chars(word.data(), word.data() + word.size(), sm).ptr;
  const std::string_view rest = word.substr(static_cast<std::size_t>(end - word.data()));
  const bool feature_letter = rest.size() == 1 && rest[0] >= 'a' && rest[0] <= 'z';
  return sm >= 10 && word.size() <= 4 && (rest.empty() || feature_letter) ? sm : 0;
}

}  // namespace

int sm_of_device_class(std::string_view device_class) {
  for (std::size_t at = 0, end = 0; at < device_class.size(); at = end + 1) {
    end = std::min(device_class.find(' ', at), device_class.size());
    if (const int sm = sm_of_word(device_class.substr(at, end - at)); sm != 0) return sm;
  }
  return 0;
}

std::optional<std::int64_t> problem_id(Database& database, std::string_view text) {
  return id_of(database, "problems", "SELECT id FROM problems WHERE text = ?1",
               "SELECT text FROM problems NOT INDEXED WHERE id = ?1", text);
}

std::optional<std::int64_t> device_class_id(Database& database, std::string_view text) {
  return id_of(database, "device_classes", "SELECT id FROM device_classes WHERE text = ?1",
               "SELECT text FROM device_classes NOT INDEXED WHERE id = ?1", text);
}

Try read_try(const Query& row) try {
  int column = 1;  // the order of the view's columns in schema.sql
  Try t;
  t.problem = row.text(column++);
  t.device_class = row.text(column++);
  for_each_column(t, [&](const char*, auto& member) { read(row, column++, member); });
  if (const std::string wrong = wrong_with(t); !wrong.empty())
    throw Error(ErrorCode::kCache, wrong);
  return t;
} catch (const Error& error) {
  throw_error(ErrorCode::kCache, "try {}: {}", row.integer(0), error.what());
}

std::optional<Try> indexed_try(Database& database, std::int64_t id, std::string_view problem,
                               std::string_view device_class) {
  Query row = database.query("SELECT * FROM readable_tries WHERE id = ?1", id);
  if (!row.step() || row.text(1) != problem || row.text(2) != device_class)
    index_is_damaged("tries");
  try {
    return read_try(row);
  } catch (const Error&) {
    return std::nullopt;
  }
}

void put_try(Database& database, const Try& attempt, Conflict conflict) {
  if (const std::string wrong = wrong_with(attempt); !wrong.empty())
    throw_error(ErrorCode::kInternal, "cannot store the try '{}' of '{}': {}", attempt.config,
                attempt.problem, wrong);
  const std::int64_t problem = problem_row(database, attempt.problem);
  const std::int64_t device_class = device_class_row(database, attempt.device_class);
  confirm_key(database, problem, device_class, attempt.config, attempt.digest);
  Query insert = database.query(try_sql(conflict), problem, device_class);
  for_each_column(as_stored(attempt, conflict),
                  [&](const char*, const auto& member) { bind(insert, member); });
  if (conflict == Conflict::kReplace) insert.bind(kRacedSamples);
  insert.run();
}

void put_search(Database& database, const Search& search, Conflict conflict) {
  const std::int64_t problem = problem_row(database, search.problem);
  const bool date_it = search.finished_at.empty() && conflict == Conflict::kReplace;
  database
      .query(search_sql(conflict), problem, device_class_row(database, search.device_class),
             to_string(search.rigor), search.winner, date_it ? utc_now() : search.finished_at)
      .run();
}

}  // namespace attnforge
