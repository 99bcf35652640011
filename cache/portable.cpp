// portable.cpp - tries and finished searches as lines of JSON: export, import, show.
// docs/CACHE_FORMAT.md documents a line.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

#include "attnforge/cache.h"
#include "cache/admin.h"
#include "cache/file/scan.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kFormat = 1;

// What is beyond these was not measured, and not written by an export.
constexpr double kShortestUs = 1e-3, kLongestUs = 1e12;
constexpr std::size_t kLongestLine = 64 << 10;  // an export's have some 5 KiB, most of it `detail`
constexpr std::size_t kLargestImport = 256 << 20;  // all of it is read before the file is touched

std::string line_of(const Json& object) {
  // ASCII only: a terminal obeys some characters that JSON may hold.
  return object.dump(-1, ' ', true, Json::error_handler_t::replace);
}

/// A max_error that is not a number is null.
Json to_json(const Try& t) {
  Json object = {{"kind", "try"},
                 {"format", kFormat},
                 {"problem", t.problem},
                 {"device_class", t.device_class}};
  for_each_column(t, [&]<class Member>(const char* name, const Member& member) {
    if constexpr (std::is_enum_v<Member>)
      object[name] = to_string(member);
    else
      object[name] = member;
  });
  return object;
}

Json to_json(const Search& s) {
  return {{"kind", "search"},
          {"format", kFormat},
          {"problem", s.problem},
          {"device_class", s.device_class},
          {"rigor", to_string(s.rigor)},
          {"winner", s.winner},
          {"finished_at", s.finished_at}};
}

template <class... Values>
[[noreturn]] void refuse(fmt::format_string<Values...> format, Values&&... values) {
  throw_error(ErrorCode::kCache, format, std::forward<Values>(values)...);
}

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse("it has no \"{}\"", name);
  return *found;
}

/// `value` for a message: printable and short, whatever a stranger's file holds.
std::string quoted(const Json& value) {
  constexpr std::size_t kShown = 60;
  const std::string whole = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (whole.size() <= kShown) return whole;
  return fmt::format("{}... ({} bytes)", whole.substr(0, kShown), whole.size());
}

/// Texts but `detail`, which may be a compiler's log, are one line.
bool has_control_characters(std::string_view text) {
  return std::any_of(text.begin(), text.end(),
                     [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

std::string text(const Json& object, const char* name, bool required = false) {
  const Json& value = field(object, name);
  if (!value.is_string()) refuse("\"{}\" is {}, not a string", name, quoted(value));
  auto result = value.get<std::string>();
  if (required && result.empty()) refuse("\"{}\" is empty", name);
  if (result.find('\0') != std::string::npos) refuse("\"{}\" holds a zero byte", name);
  if (std::string_view(name) != "detail" && has_control_characters(result))
    refuse("\"{}\" is {}, with control characters in it", name, quoted(value));
  return result;
}

/// "2025-03-14T09:26:53Z"; "": unknown. Dates are compared as texts.
std::string date(const Json& object, const char* name) {
  constexpr std::string_view kForm = "dddd-dd-ddTdd:dd:ddZ";
  std::string value = text(object, name);
  bool good = value.empty() || value.size() == kForm.size();
  for (std::size_t i = 0; good && i < value.size(); ++i)
    good = kForm[i] == 'd' ? value[i] >= '0' && value[i] <= '9' : value[i] == kForm[i];
  const auto part = [&](std::size_t at) { return 10 * (value[at] - '0') + (value[at + 1] - '0'); };
  if (good && !value.empty()) {
    const std::chrono::year_month_day day{std::chrono::year(100 * part(0) + part(2)),
                                          std::chrono::month(static_cast<unsigned>(part(5))),
                                          std::chrono::day(static_cast<unsigned>(part(8)))};
    good = day.ok() && part(11) <= 23 && part(14) <= 59 && part(17) <= 60;
  }
  if (!good) {
    refuse("\"{}\" is {}: not a date like 2025-03-14T09:26:53Z", name, quoted(object.at(name)));
  }
  return value;
}

double number(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_number()) refuse("\"{}\" is {}, not a number", name, quoted(value));
  const double result = value.get<double>();
  if (!std::isfinite(result) || result < 0)
    refuse("\"{}\" is {}: not a size or time", name, quoted(value));
  return result;
}

void read(const Json& object, const std::string& name, std::string& to) {
  to = name == "measured_at" ? date(object, "measured_at")
                             : text(object, name.c_str(), name == "config");
}
void read(const Json& object, const std::string& name, Rigor& to) {
  to = parse_rigor(text(object, name.c_str()));
}
void read(const Json& object, const std::string& name, Status& to) {
  to = parse_status(text(object, name.c_str()));
}
void read(const Json& object, const std::string& name, double& to) {
  const bool unknown = name == "max_error" && field(object, name.c_str()).is_null();
  to = unknown ? std::numeric_limits<double>::quiet_NaN() : number(object, name.c_str());
}
void read(const Json& object, const std::string& name, bool& to) {
  const Json& value = field(object, name.c_str());
  if (!value.is_boolean()) refuse("\"{}\" is {}, not true or false", name, quoted(value));
  to = value.get<bool>();
}
void read(const Json& object, const std::string& name, int& to) {
  const Json& value = field(object, name.c_str());
  if (!value.is_number_integer() || value < 0 || value > std::numeric_limits<int>::max())
    refuse("\"{}\" is {}, not a count", name, quoted(value));
  to = value.get<int>();
}

Try try_of(const Json& object) {
  Try t;
  t.problem = text(object, "problem", true);
  t.device_class = text(object, "device_class", true);
  for_each_column(t, [&](const char* name, auto& member) { read(object, name, member); });
  const Measurement& m = t.measurement;
  if (m.status == Status::kOk && !t.estimated &&
      !(m.time_us >= kShortestUs && m.time_us <= kLongestUs)) {
    refuse("\"time_us\" of a measured kernel is {}: it is from {} to {}", m.time_us, kShortestUs,
           kLongestUs);
  }
  return t;
}

Search search_of(const Json& object) {
  Search s;
  s.problem = text(object, "problem", true);
  s.device_class = text(object, "device_class", true);
  s.rigor = parse_rigor(text(object, "rigor"));
  s.winner = text(object, "winner");
  s.finished_at = date(object, "finished_at");
  return s;
}

struct Lines {
  std::vector<Try> tries;
  std::vector<Search> searches;
};

void take_line(std::string_view line, Lines& lines) {
  if (line.starts_with("SQLite format 3"))
    refuse("it is a database; attnforge cache export --cache FILE writes what can be imported");
  const Json object = Json::parse(line, nullptr, false);
  if (!object.is_object())
    refuse("it is not a whole JSON object, as attnforge cache export writes one on each line");
  const Json& format = field(object, "format");
  if (format != kFormat)
    refuse("its format is {}, this attnforge reads {}{}", quoted(format), kFormat,
           format.is_number() && format > kFormat ? ": use a newer one" : "");
  const std::string kind = text(object, "kind");
  if (kind == "try")
    lines.tries.push_back(try_of(object));
  else if (kind == "search")
    lines.searches.push_back(search_of(object));
  else
    refuse("its kind is {}, expected \"try\" or \"search\"", quoted(object["kind"]));
}

/// The next line without its newline; nullopt at the end, and where reading fails (in.bad()). A
/// line that does not fit into `buffer` is not read to its end: it may have none.
std::optional<std::string_view> next_line(std::istream& in, std::vector<char>& buffer) {
  in.get(buffer.data(), static_cast<std::streamsize>(buffer.size()), '\n');
  const auto length = static_cast<std::size_t>(in.gcount());
  if (in.bad() || (in.eof() && length == 0)) return std::nullopt;
  if (length + 1 == buffer.size()) refuse("it is longer than {} KiB", kLongestLine >> 10);
  in.clear();  // an empty line counts as a failure
  in.get();    // the newline, or the end
  return std::string_view(buffer.data(), length);
}

Lines read_lines(std::istream& in) {
  Lines lines;
  std::vector<char> buffer(kLongestLine + 2);
  std::size_t bytes = 0;
  for (int number = 1;; ++number) {
    try {
      const std::optional<std::string_view> line = next_line(in, buffer);
      if (!line) break;
      bytes += line->size() + 1;
      if (bytes > kLargestImport) {
        refuse("the file is larger than {} MiB; import it in parts", kLargestImport >> 20);
      }
      if (line->find_first_not_of(" \t\r") != line->npos) take_line(*line, lines);
    } catch (const std::exception& error) {
      throw_error(ErrorCode::kCache, "line {} cannot be imported: {}. Nothing was imported", number,
                  error.what());
    }
  }
  if (in.bad())
    throw Error(ErrorCode::kCache,
                "the file to import cannot be read to its end. Nothing was imported");
  return lines;
}

// Good ones by time, then estimates, then failures.
bool shown_before(const Try& a, const Try& b) {
  const auto order = [](const Try& t) {
    return std::tuple<const std::string&, const std::string&, bool, bool, double,
                      const std::string&>(
        t.problem, t.device_class, t.measurement.status != Status::kOk, t.estimated,
        t.estimated ? t.estimate_us : t.measurement.time_us, t.config);
  };
  return order(a) < order(b);
}

bool exported_before(const Try& a, const Try& b) {
  return std::tie(a.problem, a.device_class, a.config, a.digest) <
         std::tie(b.problem, b.device_class, b.config, b.digest);
}

}  // namespace

std::vector<std::string> cache_show(const std::string& path, const std::string& filter,
                                    std::vector<std::string>* left_out) {
  return on_database(path, [&](Database& database) {
    LeftOut unread;
    std::vector<Try> tries = scan_tries(database, filter, unread);
    std::stable_sort(tries.begin(), tries.end(), shown_before);
    std::vector<std::string> lines;
    for (const Try& each : tries) lines.push_back(line_of(to_json(each)));
    if (left_out) *left_out = std::move(unread);
    return lines;
  });
}

int cache_export(const std::string& path, std::ostream& out, const std::string& filter,
                 std::vector<std::string>* left_out) {
  return on_database(path, [&](Database& database) {
    const ReadTransaction one_view(database);
    LeftOut unread;
    std::vector<Try> tries = scan_tries(database, filter, unread);
    std::stable_sort(tries.begin(), tries.end(), exported_before);
    const std::vector<Search> searches = scan_searches(database, filter, unread);
    for (const Try& each : tries) out << line_of(to_json(each)) << '\n';
    for (const Search& each : searches) out << line_of(to_json(each)) << '\n';
    out.flush();
    if (!out)
      throw_error(ErrorCode::kCache,
                  "the export of {} cannot be written to its end: is the disk full?",
                  admin_path(path));
    if (left_out) *left_out = std::move(unread);
    return static_cast<int>(tries.size() + searches.size());
  });
}

int cache_import(const std::string& path, std::istream& in) {
  const Lines lines = read_lines(in);  // all of it before the file is touched
  const auto merge = [&](Database& database) {
    WriteTransaction transaction(database);
    for (const Try& attempt : lines.tries) put_try(database, attempt, Conflict::kMerge);
    for (const Search& search : lines.searches) put_search(database, search, Conflict::kMerge);
    transaction.commit();
    return static_cast<int>(lines.tries.size() + lines.searches.size());
  };
  return on_database(path, merge, OpenMode::kCreate, "imported");
}

}  // namespace attnforge
