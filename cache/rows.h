// rows.h - a Try as a row of the database and back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "cache/cache.h"
#include "cache/file/database.h"

namespace attnforge {

/// 90 for "NVIDIA H200 sm_90a sms=132 ...", 0 if the text names none.
int sm_of_device_class(std::string_view device_class);

/// The ids of texts. An index finds the row and the table must confirm it: throws SqliteError,
/// corrupt() if it does not. Nothing if the text is not there.
std::optional<std::int64_t> problem_id(Database& database, std::string_view text);
std::optional<std::int64_t> device_class_id(Database& database, std::string_view text);

/// Calls visit(name, member) for the columns of a try, or an export's fields, from its config on.
template <class T, class Visit>
void for_each_column(T&& t, const Visit& visit) {
  auto& m = t.measurement;
  visit("config", t.config), visit("digest", t.digest), visit("family", t.family);
  visit("rigor", t.rigor), visit("estimate_us", t.estimate_us), visit("estimated", t.estimated);
  visit("status", m.status), visit("time_us", m.time_us), visit("noise", m.noise);
  visit("samples", m.samples), visit("max_error", m.max_error), visit("clock_mhz", m.clock_mhz);
  visit("detail", m.detail), visit("driver", t.driver), visit("nvrtc", t.nvrtc);
  visit("uuid", t.uuid), visit("attnforge_version", t.attnforge_version);
  visit("measured_at", t.measured_at);
}

/// A row of `readable_tries`. Throws Error(kCache) with the row's number for one that damage has
/// made unreadable: no text for its problem, a word that is none.
Try read_try(const Query& row);

/// The try that an index named `id` for a problem and a GPU class; nothing if it cannot be read.
/// Throws SqliteError, corrupt() if the row is missing or of another problem or class.
std::optional<Try> indexed_try(Database& database, std::int64_t id, std::string_view problem,
                               std::string_view device_class);

/// When a try meets a stored one of the same problem, GPU class, config and digest.
enum class Conflict {
  kReplace,  // the new one stays if it has at least the rigor, was raced, or failed; a measurement
             // always beats an estimate
  kMerge,    // the greater one in a total order stays: measured, rigor, date, then everything else
};
/// Inside a transaction. Fills in an empty version, and an empty date when replacing; keeps
/// `detail` to 4 KiB of valid UTF-8. Throws Error(kInternal) for a try that cannot be one: no
/// config, or ok without a time.
void put_try(Database& database, const Try& attempt, Conflict conflict);

struct Search {
  std::string problem, device_class;
  Rigor rigor = Rigor::kQuick;
  std::string winner;  // "": nothing worked
  std::string finished_at;
};
/// kReplace: the new one stays. kMerge: the later one, then the greater text.
void put_search(Database& database, const Search& search, Conflict conflict);

}  // namespace attnforge
