// portable.cpp - tries and finished searches as lines of JSON: export, import, show.
// docs/CACHE_FORMAT.md documents a line.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <ostream>
#include <string_view>
#include <tuple>
#include <vector>

#include "attnforge/cache.h"
#include "attnforge/error.h"
#include "cache/admin.h"
#include "cache/file/scan.h"

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

Json to_json(const Try& t) {
  const Measurement& m = t.measurement;
  return {{"kind", "try"},
          {"format", kFormat},
          {"problem", t.problem},
          {"device_class", t.device_class},
          {"config", t.config},
          {"digest", t.digest},
          {"family", t.family},
          {"rigor", to_string(t.rigor)},
          {"estimate_us", t.estimate_us},
          {"estimated", t.estimated},
          {"status", to_string(m.status)},
          {"time_us", m.time_us},
          {"noise", m.noise},
          {"samples", m.samples},
          {"max_error", m.max_error},  // null if it is not a number
          {"clock_mhz", m.clock_mhz},
          {"detail", m.detail},
          {"driver", t.driver},
          {"nvrtc", t.nvrtc},
          {"uuid", t.uuid},
          {"attnforge_version", t.attnforge_version},
          {"measured_at", t.measured_at}};
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

[[noreturn]] void refuse(const std::string& why) { throw Error(ErrorCode::kCache, why); }

const Json& field(const Json& object, const char* name) {
  const auto found = object.find(name);
  if (found == object.end()) refuse(fmt::format("it has no \"{}\"", name));
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
  if (!value.is_string()) refuse(fmt::format("\"{}\" is {}, not a string", name, quoted(value)));
  auto result = value.get<std::string>();
  if (required && result.empty()) refuse(fmt::format("\"{}\" is empty", name));
  if (result.find('\0') != std::string::npos) refuse(fmt::format("\"{}\" holds a zero byte", name));
  if (std::string_view(name) != "detail" && has_control_characters(result))
    refuse(fmt::format("\"{}\" is {}, with control characters in it", name, quoted(value)));
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
    good = part(5) >= 1 && part(5) <= 12 && part(8) >= 1 && part(8) <= 31 && part(11) <= 23 &&
           part(14) <= 59 && part(17) <= 60;
  }
  if (!good) {
    refuse(fmt::format("\"{}\" is {}: not a date like 2025-03-14T09:26:53Z", name,
                       quoted(object.at(name))));
  }
  return value;
}

double number(const Json& object, const char* name) {
  const Json& value = field(object, name);
  if (!value.is_number()) refuse(fmt::format("\"{}\" is {}, not a number", name, quoted(value)));
  const double result = value.get<double>();
  if (!std::isfinite(result) || result < 0)
    refuse(fmt::format("\"{}\" is {}: not a size or time", name, quoted(value)));
  return result;
}

Try try_of(const Json& object) {
  Try t;
  t.problem = text(object, "problem", true);
  t.device_class = text(object, "device_class", true);
  t.config = text(object, "config", true);
  t.digest = text(object, "digest");
  t.family = text(object, "family");
  t.rigor = parse_rigor(text(object, "rigor"));
  t.estimate_us = number(object, "estimate_us");
  const Json& estimated = field(object, "estimated");
  if (!estimated.is_boolean())
    refuse(fmt::format("\"estimated\" is {}, not true or false", quoted(estimated)));
  t.estimated = estimated.get<bool>();
  Measurement& m = t.measurement;
  m.status = parse_status(text(object, "status"));
  m.time_us = number(object, "time_us");
  if (m.status == Status::kOk && !t.estimated &&
      !(m.time_us >= kShortestUs && m.time_us <= kLongestUs)) {
    refuse(fmt::format("\"time_us\" of a measured kernel is {}: it is from {} to {}", m.time_us,
                       kShortestUs, kLongestUs));
  }
  m.noise = number(object, "noise");
  const Json& samples = field(object, "samples");
  if (!samples.is_number_integer() || samples < 0 || samples > std::numeric_limits<int>::max())
    refuse(fmt::format("\"samples\" is {}, not a count", quoted(samples)));
  m.samples = samples.get<int>();
  const bool no_error = field(object, "max_error").is_null();
  m.max_error = no_error ? std::numeric_limits<double>::quiet_NaN() : number(object, "max_error");
  m.clock_mhz = number(object, "clock_mhz");
  m.detail = text(object, "detail");
  t.driver = text(object, "driver");
  t.nvrtc = text(object, "nvrtc");
  t.uuid = text(object, "uuid");
  t.attnforge_version = text(object, "attnforge_version");
  t.measured_at = date(object, "measured_at");
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
  const Json object = Json::parse(line);
  if (!object.is_object()) refuse("it is not a JSON object");
  const Json& format = field(object, "format");
  if (format != kFormat)
    refuse(fmt::format("its format is {}, this attnforge reads {}: use a newer one", quoted(format),
                       kFormat));
  const std::string kind = text(object, "kind");
  if (kind == "try")
    lines.tries.push_back(try_of(object));
  else if (kind == "search")
    lines.searches.push_back(search_of(object));
  else
    refuse(fmt::format("its kind is {}, expected \"try\" or \"search\"", quoted(object["kind"])));
}

/// The next line without its newline; nullopt at the end, and where reading fails (in.bad()). A
/// line that does not fit into `buffer` is not read to its end: it may have none.
std::optional<std::string_view> next_line(std::istream& in, std::vector<char>& buffer) {
  in.get(buffer.data(), static_cast<std::streamsize>(buffer.size()), '\n');
  const auto length = static_cast<std::size_t>(in.gcount());
  if (in.bad() || (in.eof() && length == 0)) return std::nullopt;
  if (length + 1 == buffer.size())
    refuse(fmt::format("it is longer than {} KiB", kLongestLine >> 10));
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
        refuse(fmt::format("the file is larger than {} MiB; import it in parts",
                           kLargestImport >> 20));
      }
      if (line->find_first_not_of(" \t\r") != line->npos) take_line(*line, lines);
    } catch (const std::exception& error) {
      throw Error(ErrorCode::kCache,
                  fmt::format("line {} cannot be imported: {}. Nothing was imported", number,
                              error.what()));
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
  const std::string where = admin_path(path);
  return with_cache_errors(where, [&] {
    Opened opened = open_for_admin(path, OpenMode::kReadWrite);
    LeftOut unread;
    std::vector<Try> tries = scan_tries(opened.database, filter, unread);
    std::stable_sort(tries.begin(), tries.end(), shown_before);
    std::vector<std::string> lines;
    for (const Try& each : tries) lines.push_back(line_of(to_json(each)));
    if (left_out) *left_out = std::move(unread);
    return lines;
  });
}

int cache_export(const std::string& path, std::ostream& out, const std::string& filter,
                 std::vector<std::string>* left_out) {
  const std::string where = admin_path(path);
  return with_cache_errors(where, [&] {
    Opened opened = open_for_admin(path, OpenMode::kReadWrite);
    const ReadTransaction one_view(opened.database);
    LeftOut unread;
    std::vector<Try> tries = scan_tries(opened.database, filter, unread);
    std::stable_sort(tries.begin(), tries.end(), exported_before);
    const std::vector<Search> searches = scan_searches(opened.database, filter, unread);
    for (const Try& each : tries) out << line_of(to_json(each)) << '\n';
    for (const Search& each : searches) out << line_of(to_json(each)) << '\n';
    out.flush();
    if (!out)
      throw Error(
          ErrorCode::kCache,
          fmt::format("the export of {} cannot be written to its end: is the disk full?", where));
    if (left_out) *left_out = std::move(unread);
    return static_cast<int>(tries.size() + searches.size());
  });
}

int cache_import(const std::string& path, std::istream& in) {
  const std::string where = admin_path(path);
  const Lines lines = read_lines(in);  // all of it before the file is touched
  return with_cache_errors(where, [&] {
    Opened opened = open_for_admin(path, OpenMode::kCreate);
    if (!opened.writable)
      throw Error(ErrorCode::kCache,
                  fmt::format("{} or its folder is read-only: nothing was imported", where));
    WriteTransaction transaction(opened.database);
    for (const Try& attempt : lines.tries) put_try(opened.database, attempt, Conflict::kMerge);
    for (const Search& search : lines.searches)
      put_search(opened.database, search, Conflict::kMerge);
    transaction.commit();
    return static_cast<int>(lines.tries.size() + lines.searches.size());
  });
}

}  // namespace attnforge
