#include "cli/plot/landscape.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <set>
#include <sstream>

#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

struct Fields {
  std::string family;
  std::vector<std::pair<std::string, int>> values;  // in the family's order
  double time_us = 0;

  const int* find(const std::string& name) const {
    const auto found = std::ranges::find(values, name, &std::pair<std::string, int>::first);
    return found == values.end() ? nullptr : &found->second;
  }
};

/// A config's text: "family name=value ...".
Fields fields_of(const Trial& trial) {
  Fields fields;
  fields.time_us = trial.measurement.time_us;
  std::istringstream stream(trial.config);
  stream >> fields.family;
  for (std::string word; stream >> word;) {
    const std::size_t equals = word.find('=');
    if (equals == word.npos) continue;
    fields.values.emplace_back(word.substr(0, equals), std::atoi(word.c_str() + equals + 1));
  }
  return fields;
}

/// Fields with several values, in the family's order.
std::vector<std::string> varying(const std::vector<Fields>& configs) {
  std::vector<std::string> names;
  for (const auto& [name, value] : configs.front().values) {
    std::set<int> values;
    for (const Fields& each : configs) {
      if (const int* const found = each.find(name)) values.insert(*found);
    }
    if (values.size() > 1) names.push_back(name);
  }
  return names;
}

/// The requested name, else the usual one, else the first that `other` is not; "" if there is none.
std::string axis_name(const std::vector<std::string>& names, const std::string& asked,
                      const std::string& usual, const std::string& other) {
  const auto has = [&](const std::string& name) {
    return name != other && std::find(names.begin(), names.end(), name) != names.end();
  };
  if (!asked.empty()) return has(asked) ? asked : "";
  if (has(usual)) return usual;
  const auto first = std::ranges::find_if(names, [&](const auto& name) { return name != other; });
  return first == names.end() ? "" : *first;
}

/// The family of a config may come from a database of others: no folders, nothing that gnuplot
/// reads.
std::string as_file_name(std::string name) {
  for (char& c : name) {
    if (!std::isalnum(static_cast<unsigned char>(c)) && c != '_' && c != '-') c = '_';
  }
  return name;
}

HeatMap map_of(std::vector<Fields> configs, const std::string& x, const std::string& y) {
  HeatMap map;
  map.x_name = x;
  map.y_name = y;
  map.z_name = "best time (us)";
  std::erase_if(configs, [&](const Fields& each) { return !each.find(x) || !each.find(y); });
  std::set<int> xs, ys;
  for (const Fields& each : configs) {
    xs.insert(*each.find(x));
    ys.insert(*each.find(y));
  }
  map.xs.assign(xs.begin(), xs.end());
  map.ys.assign(ys.begin(), ys.end());
  map.cells.assign(ys.size(), std::vector<std::optional<double>>(xs.size()));
  double best_us = 0;
  for (const Fields& each : configs) {
    const auto column = std::lower_bound(map.xs.begin(), map.xs.end(), *each.find(x));
    const auto row = std::lower_bound(map.ys.begin(), map.ys.end(), *each.find(y));
    const auto at_x = static_cast<std::size_t>(column - map.xs.begin());
    const auto at_y = static_cast<std::size_t>(row - map.ys.begin());
    std::optional<double>& cell = map.cells[at_y][at_x];
    if (!cell || each.time_us < *cell) cell = each.time_us;
    if (best_us == 0 || each.time_us < best_us) {
      best_us = each.time_us;
      map.winner_x = at_x;
      map.winner_y = at_y;
    }
  }
  return map;
}

}  // namespace

LandscapeOptions landscape_options(const std::string& axes) {
  LandscapeOptions options;
  if (axes.empty()) return options;
  const std::size_t comma = axes.find(',');
  if (comma != axes.npos) {
    options.x = axes.substr(0, comma);
    options.y = axes.substr(comma + 1);
  }
  if (options.x.empty() || options.y.empty() || options.x == options.y) {
    refuse(kInvalidArgument,
           "--axes {} must be two different fields of a config, such as block_n,block_m", axes);
  }
  return options;
}

std::vector<HeatMap> landscapes(const std::string& problem, const std::vector<Trial>& trials,
                                const LandscapeOptions& options) {
  std::map<std::string, std::vector<Fields>> families;
  for (const Trial& trial : trials) {
    if (trial.measurement.status != Status::kOk || !(trial.measurement.time_us > 0)) continue;
    Fields fields = fields_of(trial);
    std::vector<Fields>& family = families[fields.family];
    family.push_back(std::move(fields));
  }
  std::vector<HeatMap> maps;
  std::string have;
  for (const auto& [family, configs] : families) {
    const std::vector<std::string> names = varying(configs);
    have += fmt::format("\n{}: {}", family,
                        names.empty() ? "none" : fmt::format("{}", fmt::join(names, ", ")));
    std::string x = axis_name(names, options.x, "block_n", options.y);
    const std::string y = axis_name(names, options.y, "block_m", x);
    if (x.empty() || y.empty()) continue;
    HeatMap map = map_of(configs, x, y);
    map.file = fmt::format("{}_{}", options.prefix.empty() ? "landscape" : options.prefix,
                           as_file_name(family));
    const auto best = std::ranges::min_element(configs, {}, &Fields::time_us);
    map.title = fmt::format("{}: {} configs, fastest {:.4g} us (framed)", family, configs.size(),
                            best->time_us);
    map.subtitle = problem;
    map.note = options.note;
    maps.push_back(std::move(map));
  }
  if (maps.empty()) {
    refuse(kInvalidArgument,
           "no landscape can be drawn of \"{}\"{}; fields with several values among what was "
           "measured:{}",
           problem,
           options.x.empty() && options.y.empty()
               ? ""
               : fmt::format(" over {} and {}", options.x, options.y),
           have.empty() ? " nothing was measured" : have);
  }
  return maps;
}

std::vector<Picture> landscape_pictures(const std::vector<Search>& searches,
                                        const std::string& axes) {
  std::vector<Picture> pictures;
  for (std::size_t i = 0; i < searches.size(); ++i) {
    const Search& search = searches[i];
    if (search.trials.empty()) continue;
    LandscapeOptions options = landscape_options(axes);
    options.note = search.note;
    if (searches.size() > 1) options.prefix = fmt::format("landscape_{}", i + 1);
    for (const HeatMap& map : landscapes(search.problem, search.trials, options))
      pictures.push_back(picture_of(map));
  }
  return pictures;
}

}  // namespace attnforge::cli
