#include "cache/shipped.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "attnforge/error.h"
#include "cache/rows.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kShippedFormat = 1;

std::string_view next_line(std::string_view& rest) {
  const std::string_view line = rest.substr(0, rest.find('\n'));
  rest.remove_prefix(std::min(line.size() + 1, rest.size()));
  return line;
}

/// What all winners of a file share.
Try head_of(std::string_view line) {
  const Json object = Json::parse(line);
  if (object.at("format") != kShippedFormat)
    throw_error(ErrorCode::kCache, "its format is {}, not {}", object.at("format").dump(),
                kShippedFormat);
  Try head;
  object.at("device_class").get_to(head.device_class);
  object.at("driver").get_to(head.driver);
  object.at("nvrtc").get_to(head.nvrtc);
  object.at("attnforge_version").get_to(head.attnforge_version);
  object.at("measured_at").get_to(head.measured_at);
  return head;
}

Shipped winner_of(std::string_view line, const Try& head) {
  const Json object = Json::parse(line);
  Shipped winner{.best = head, .code = object.at("code")};
  object.at("problem").get_to(winner.best.problem);
  object.at("config").get_to(winner.best.config);
  object.at("digest").get_to(winner.best.digest);
  winner.best.rigor = parse_rigor(object.at("rigor").get<std::string>());
  winner.best.family = winner.best.config.substr(0, winner.best.config.find(' '));
  Measurement& m = winner.best.measurement;
  object.at("time_us").get_to(m.time_us);
  object.at("noise").get_to(m.noise);
  object.at("samples").get_to(m.samples);
  object.at("clock_mhz").get_to(m.clock_mhz);
  return winner;
}

/// Calls visit(winner) for the lines of `file` that begin with `start`, if its GPU is `wanted`.
template <class Wanted, class Visit>
void each_winner(WinnersFile file, std::string_view start, const Wanted& wanted,
                 const Visit& visit) {
  if (file.empty()) return;
  int number = 1;
  try {
    const Try head = head_of(next_line(file));
    if (!wanted(head.device_class)) return;
    for (++number; !file.empty(); ++number) {
      const std::string_view line = next_line(file);
      if (line.starts_with(start)) visit(winner_of(line, head));
    }
  } catch (const std::exception& error) {
    throw_error(ErrorCode::kCache, "line {} of a file of winners cannot be read: {}", number,
                error.what());
  }
}

/// each_winner() of the files that look-ups ask. A test reads every line of the library's; what is
/// wrong all the same is no reason to fail a plan, and the doctor says what is wrong with a named
/// file.
template <class Wanted, class Visit>
void each_shipped(std::string_view start, const Wanted& wanted, const Visit& visit) {
  const char* const named = secure_getenv("ATTNFORGE_SHIPPED_WINNERS");
  try {
    if (named != nullptr && *named != '\0')
      each_winner(winners_named(named), start, wanted, visit);
    else
      for (const WinnersFile file : kWinnersFiles) each_winner(file, start, wanted, visit);
  } catch (const Error&) {
  }
}

}  // namespace

std::string winners_named(const std::string& path) {
  if (path == "0") return "";
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().empty())
    throw_error(ErrorCode::kCache, "{} cannot be read: name a file as data/winners has them, or 0",
                path);
  return text.str();
}

std::vector<Shipped> read_winners(WinnersFile file) {
  std::vector<Shipped> all;
  each_winner(
      file, "", [](const std::string&) { return true; },
      [&](Shipped&& winner) { all.push_back(std::move(winner)); });
  return all;
}

std::string winners_text(std::span<const Shipped> winners) {
  ATTNFORGE_ASSERT(!winners.empty(), "a file of winners says whose GPU they are of");
  const Try& first = winners.front().best;
  std::string text = Json{{"format", kShippedFormat},
                          {"device_class", first.device_class},
                          {"driver", first.driver},
                          {"nvrtc", first.nvrtc},
                          {"attnforge_version", first.attnforge_version},
                          {"measured_at", first.measured_at}}
                         .dump() +
                     "\n";
  for (const auto& [best, code] : winners) {
    const Measurement& m = best.measurement;
    text += Json{{"problem", best.problem},
                 {"config", best.config},
                 {"digest", best.digest},
                 {"code", code},
                 {"rigor", to_string(best.rigor)},
                 {"time_us", m.time_us},
                 {"noise", m.noise},
                 {"samples", m.samples},
                 {"clock_mhz", m.clock_mhz}}
                .dump() +
            "\n";
  }
  return text;
}

std::vector<Shipped> shipped_winners(std::string_view problem, std::string_view device_class,
                                     int sm) {
  std::string start = Json{{"problem", problem}}.dump();
  start.pop_back();  // of the object, which goes on
  std::vector<Shipped> found;
  each_shipped(
      start, [&](const std::string& of) { return sm_of_device_class(of) == sm; },
      [&](Shipped&& winner) {
        const bool own = winner.best.device_class == device_class;
        found.insert(own ? found.begin() : found.end(), std::move(winner));
      });
  return found;
}

std::vector<Chosen> shipped_chosen(std::string_view device_class) {
  std::vector<Chosen> all;
  each_shipped(
      "", [&](const std::string& of) { return of == device_class; },
      [&](Shipped&& winner) {
        all.push_back({std::move(winner.best.problem), std::move(winner.best.config)});
      });
  return all;
}

}  // namespace attnforge
