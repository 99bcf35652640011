#include "cli/plot_sweep.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <sstream>

#include "attnforge/error.h"
#include "attnforge/provenance.h"
#include "cli/roofs.h"

namespace attnforge::cli {
namespace {

/// A good row, read.
struct Point {
  std::string group;   // the problem without what a line or an axis stands for
  std::string family;  // "best" where none was asked for
  std::string strategy;
  std::string gpu, date;
  std::string provenance;  // "": not said, or of a peer
  DType dtype = DType::kBf16;
  std::string blocks;  // of a block mask: "64", "128:64"; "": none
  double density = 0;
  std::string unmasked;  // the problem without them
  int batch = 0, head_dim = 0;
  double seqlen = 0, seqlen_kv = 0, time_us = 0, tflops_per_s = 0, gbytes_per_s = 0, peak_bytes = 0,
         quadratic_bytes = 0;
  double noise = 0;  // interquartile range / median of the time
};

/// Cells of a row by the names of the columns.
class Cells {
 public:
  explicit Cells(const Table& table) {
    for (std::size_t i = 0; i < table.columns.size(); ++i) place_[table.columns[i].name] = i;
  }
  const std::string& text(const std::vector<std::string>& row, const std::string& column) const {
    const auto found = place_.find(column);
    if (found == place_.end()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("the rows have no column {}; they must be those of bench --csv or "
                              "--out",
                              column));
    }
    return row[found->second];
  }
  bool has(const std::string& column) const { return place_.count(column) > 0; }
  std::string text_if_any(const std::vector<std::string>& row, const std::string& column) const {
    return place_.count(column) ? text(row, column) : "";
  }
  double number(const std::vector<std::string>& row, const std::string& column) const {
    return std::strtod(text(row, column).c_str(), nullptr);
  }

 private:
  std::map<std::string, std::size_t> place_;
};

/// A problem's text without the words that lines and axes stand for, and with one word for heads of
/// which there are as many for queries as for keys.
std::string group_of(const std::string& problem) {
  std::istringstream stream(problem);
  std::string group, heads;
  for (std::string word; stream >> word;) {
    const std::string name = word.substr(0, word.find('='));
    if (name == "seqlen_q" || name == "seqlen_kv" || name == "batch" || name == "head_dim" ||
        name == "head_dim_v")
      continue;
    const std::string value = word.substr(std::min(word.size(), name.size() + 1));
    if (name == "num_heads_q") heads = value;
    if (name == "num_heads_q" || name == "num_heads_kv")
      word = name == "num_heads_q" ? ""
                                   : "num_heads=" + heads + (value == heads ? "" : ":" + value);
    if (!word.empty()) group += (group.empty() ? "" : " ") + word;
  }
  return group;
}

/// Sets blocks, density and unmasked.
void read_block_mask(const std::string& problem, Point& point) {
  std::istringstream stream(problem);
  for (std::string word; stream >> word;) {
    const std::size_t equals = std::min(word.size(), word.find('='));
    const std::string name = word.substr(0, equals),
                      value = word.substr(std::min(word.size(), equals + 1));
    if (name == "blocks") {
      const std::string queries = value.substr(0, value.find(':'));
      point.blocks = value == queries + ":" + queries ? queries : value;
    } else if (name == "density") {
      point.density = std::strtod(value.c_str(), nullptr);
    } else if (!name.starts_with("mask_")) {
      point.unmasked += (point.unmasked.empty() ? "" : " ") + word;
    }
  }
}

DType dtype_of(const std::string& text) {
  return text == "fp32" ? DType::kFp32 : text == "fp16" ? DType::kFp16 : DType::kBf16;
}

/// Of the rows of bench/peers.py, whose lines are attnforge, tuned, and its peers.
std::vector<Point> peer_points_of(const Table& table) {
  const Cells cells(table);
  std::vector<Point> points;
  for (const auto& row : table.rows) {
    if (cells.text(row, "ms").empty()) continue;
    const auto pair = [&](const char* q, const char* kv) {
      const std::string of_q = cells.text(row, q), of_kv = cells.text(row, kv);
      return of_q == of_kv ? of_q : of_q + ":" + of_kv;
    };
    Point point;
    point.family = cells.text(row, "impl");
    if (point.family == "attnforge") point.family += ", tuned";
    point.group = fmt::format("fwd {} num_heads={}{}", cells.text(row, "dtype"),
                              pair("num_heads_q", "num_heads_kv"),
                              cells.text(row, "causal") == "1" ? " causal" : "");
    // A line has one pair of head dims.
    if (const std::string dims = pair("head_dim", "head_dim_v"); dims.find(':') != dims.npos)
      point.group += " head_dim=" + dims;
    point.gpu = cells.text_if_any(row, "gpu");
    point.dtype = dtype_of(cells.text(row, "dtype"));
    point.batch = static_cast<int>(cells.number(row, "batch"));
    point.head_dim = static_cast<int>(cells.number(row, "head_dim"));
    point.seqlen = point.seqlen_kv = cells.number(row, "seqlen_q");
    if (cells.has("seqlen_kv")) point.seqlen_kv = cells.number(row, "seqlen_kv");
    point.time_us = 1000 * cells.number(row, "ms");
    point.tflops_per_s = cells.number(row, "tflops");
    point.noise = std::strtod(cells.text_if_any(row, "spread").c_str(), nullptr);
    points.push_back(std::move(point));
  }
  return points;
}

std::vector<Point> points_of(const Table& table) {
  const Cells cells(table);
  if (cells.has("impl")) return peer_points_of(table);
  std::vector<Point> points;
  for (const auto& row : table.rows) {
    if (cells.text(row, "status") != "ok") continue;
    Point point;
    point.group = group_of(cells.text(row, "problem"));
    read_block_mask(cells.text(row, "problem"), point);
    point.family = cells.text(row, "asked") == "any" ? "best family" : cells.text(row, "family");
    point.strategy = cells.text_if_any(row, "strategy");
    point.gpu = cells.text(row, "gpu");
    point.date = cells.text(row, "date").substr(0, 10);
    point.provenance = cells.text_if_any(row, "provenance");
    point.dtype = dtype_of(cells.text_if_any(row, "dtype"));
    point.noise = std::strtod(cells.text_if_any(row, "noise").c_str(), nullptr);
    point.gbytes_per_s = std::strtod(cells.text_if_any(row, "gbytes_per_s").c_str(), nullptr);
    point.batch = static_cast<int>(cells.number(row, "batch"));
    point.head_dim = static_cast<int>(cells.number(row, "head_dim"));
    point.seqlen = point.seqlen_kv = cells.number(row, "seqlen_q");
    if (cells.has("seqlen_kv")) point.seqlen_kv = cells.number(row, "seqlen_kv");
    point.time_us = cells.number(row, "time_us");
    point.tflops_per_s = cells.number(row, "tflops_per_s");
    point.peak_bytes = cells.number(row, "peak_bytes");
    point.quadratic_bytes = cells.number(row, "quadratic_bytes");
    points.push_back(std::move(point));
  }
  return points;
}

template <class Value>
std::set<Value> values(const std::vector<Point>& points, Value Point::*member) {
  std::set<Value> all;
  for (const Point& point : points) all.insert(point.*member);
  return all;
}

/// Whether the batch says more than the length does: sweeps of a fixed number of tokens have one
/// batch for each length.
bool batch_tells_lines_apart(const std::vector<Point>& points) {
  std::map<double, int> batch_of;
  for (const Point& point : points) {
    const auto [known, is_new] = batch_of.try_emplace(point.seqlen, point.batch);
    if (!is_new && known->second != point.batch) return true;
  }
  return false;
}

/// What tells the points of one figure apart, by the name that the legend has.
struct Naming {
  bool family, head_dim, batch, strategy;

  std::string name(const Point& point) const {
    std::string text = family ? point.family : "";
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (strategy && !point.strategy.empty()) add(point.strategy);
    if (head_dim) add(fmt::format("head_dim {}", point.head_dim));
    if (batch) add(fmt::format("batch {}", point.batch));
    return text;
  }
};

Naming naming_of(const std::vector<Point>& points) {
  Naming naming{};
  naming.head_dim = values(points, &Point::head_dim).size() > 1;
  naming.batch = batch_tells_lines_apart(points);
  naming.strategy = values(points, &Point::strategy).size() > 1;
  naming.family = values(points, &Point::family).size() > 1 ||
                  !(naming.head_dim || naming.batch || naming.strategy);
  return naming;
}

/// What all points share, as the second line of a title.
std::string shared_words(const std::vector<Point>& points, const Naming& naming,
                         bool head_dim_axis) {
  std::string text = points.front().group;
  if (!naming.head_dim && !head_dim_axis)
    text += fmt::format(" head_dim={}", points.front().head_dim);
  std::set<double> tokens;
  for (const Point& point : points) tokens.insert(point.batch * point.seqlen);
  if (values(points, &Point::batch).size() == 1)
    text += fmt::format(" batch={}", points.front().batch);
  else if (tokens.size() == 1)
    text += fmt::format(", {} tokens at each length", *tokens.begin());
  if (!naming.family) text += ", " + points.front().family;
  return text;
}

/// Whether the configs were tuned, as far as rows say.
std::string tuned_text(const std::vector<Point>& points) {
  int tuned = 0, untuned = 0;
  for (const Point& point : points) {
    if (point.provenance.empty()) continue;
    const bool measured = point.provenance == to_string(Provenance::kMeasured) ||
                          point.provenance == to_string(Provenance::kCompatible);
    ++(measured ? tuned : untuned);
  }
  if (tuned == 0) return untuned == 0 ? "" : "untuned";
  return untuned == 0 ? "tuned" : fmt::format("{} of {} tuned", tuned, tuned + untuned);
}

std::string note_of(const std::vector<Point>& points) {
  const std::set<std::string> gpus = values(points, &Point::gpu),
                              dates = values(points, &Point::date);
  std::string note = gpus.size() == 1 ? *gpus.begin() : "several GPUs";
  const auto add = [&](const std::string& part) {
    if (!part.empty()) note += (note.empty() ? "" : ", ") + part;
  };
  add(*dates.begin() == *dates.rbegin() ? *dates.begin()
                                        : *dates.begin() + " to " + *dates.rbegin());
  add(tuned_text(points));
  return note;
}

/// A line for each name, its points by x; of several rows at one x the fastest.
std::vector<Curve> curves_of(const std::vector<Point>& points,
                             const std::function<std::string(const Point&)>& name,
                             const std::function<double(const Point&)>& x,
                             const std::function<double(const Point&)>& y, bool errors = false) {
  std::vector<std::string> names;  // in the order of the rows
  std::map<std::string, std::map<double, const Point*>> lines;
  for (const Point& point : points) {
    const std::string line = name(point);
    if (!lines.count(line)) names.push_back(line);
    const auto [place, is_new] = lines[line].try_emplace(x(point), &point);
    if (!is_new && point.time_us < place->second->time_us) place->second = &point;
  }
  std::vector<Curve> curves;
  for (const std::string& line : names) {
    Curve curve{.name = line, .points = {}};
    for (const auto& [at, point] : lines[line]) curve.points.emplace_back(at, y(*point));
    // Of times and of what is 1 / time: half of the interquartile range to either side.
    const bool all_known = std::all_of(lines[line].begin(), lines[line].end(),
                                       [](const auto& each) { return each.second->noise > 0; });
    for (std::size_t i = 0; errors && all_known && i < curve.points.size(); ++i) {
      const Point& point = *std::next(lines[line].begin(), static_cast<std::ptrdiff_t>(i))->second;
      curve.errors.push_back(curve.points[i].second * point.noise / 2);
    }
    curves.push_back(std::move(curve));
  }
  return curves;
}

bool has_a_line(const std::vector<Curve>& curves) {
  return std::any_of(curves.begin(), curves.end(),
                     [](const Curve& curve) { return curve.points.size() > 1; });
}

constexpr double kWideRange = 100;  // beyond, a linear axis hides the slowest

/// One line for those that lie on each other: families that need no memory of their own.
std::vector<Curve> without_doubles(std::vector<Curve> curves) {
  std::vector<Curve> different;
  std::vector<int> others;
  for (Curve& curve : curves) {
    const auto same = std::find_if(different.begin(), different.end(),
                                   [&](const Curve& each) { return each.points == curve.points; });
    if (same == different.end()) {
      different.push_back(std::move(curve));
      others.push_back(0);
    } else {
      ++others[static_cast<std::size_t>(same - different.begin())];
    }
  }
  for (std::size_t i = 0; i < different.size(); ++i) {
    if (others[i] > 0) different[i].name += fmt::format(" and {} more", others[i]);
  }
  return different;
}

/// What a kernel that materialises its scores would take: one line for each head dim and batch.
std::vector<Curve> baseline(const std::vector<Point>& points, const Naming& naming) {
  const Naming sizes{
      .family = false, .head_dim = naming.head_dim, .batch = naming.batch, .strategy = false};
  const auto name = [&](const Point& point) {
    const std::string size = sizes.name(point);
    return "O(L^2): scores in fp32" + (size.empty() ? "" : ", " + size);
  };
  std::vector<Curve> curves = curves_of(
      points, name, [](const Point& p) { return p.seqlen; },
      [](const Point& p) { return p.quadratic_bytes; });
  for (Curve& curve : curves) curve.look = Curve::Look::kComputed;
  return curves;
}

/// What the GPU's arithmetic and memory allow at each length: nothing for a GPU that is not known.
std::vector<Curve> roofline(const std::vector<Point>& points) {
  const std::set<std::string> gpus = values(points, &Point::gpu);
  const DeviceFacts* const gpu = gpus.size() == 1 ? gpu_named(*gpus.begin()) : nullptr;
  const std::set<DType> dtypes = values(points, &Point::dtype);
  if (gpu == nullptr || dtypes.size() != 1) return {};
  const Roof peak = roofs(*gpu, *dtypes.begin()).front();
  std::map<double, double> bound;
  for (const Point& point : points) {
    double& at = bound[point.seqlen];
    const double memory = point.gbytes_per_s > 0
                              ? point.tflops_per_s * memory_gb_per_s(*gpu) / point.gbytes_per_s
                              : peak.tflops_per_s;
    at = std::max(at, std::min(memory, peak.tflops_per_s));
  }
  Curve curve{.name = "bound: " + peak.name,
              .points = {bound.begin(), bound.end()},
              .look = Curve::Look::kComputed};
  if (std::any_of(bound.begin(), bound.end(),
                  [&](const auto& each) { return each.second < peak.tflops_per_s; }))
    curve.name += ", memory";
  return {curve};
}

void add_length_figures(const std::vector<Point>& points, const std::string& suffix,
                        std::vector<Figure>& figures) {
  const Naming naming = naming_of(points);
  const auto name = [&](const Point& point) { return naming.name(point); };
  const auto seqlen = [](const Point& point) { return point.seqlen; };
  const PlotAxis lengths{"sequence length (tokens)", Unit::kNone, true};
  const auto add = [&](const char* file, const char* title, const PlotAxis& y,
                       const std::function<double(const Point&)>& value) {
    figures.push_back({.file = file + suffix,
                       .title = title,
                       .subtitle = shared_words(points, naming, false),
                       .note = note_of(points),
                       .x = lengths,
                       .y = y,
                       .curves = curves_of(points, name, seqlen, value, y.unit != Unit::kBytes)});
  };
  add("latency", "Latency against sequence length", {"time of a call", Unit::kSeconds, true},
      [](const Point& p) { return p.time_us * 1e-6; });
  const auto slower = [](const Point& a, const Point& b) {
    return a.tflops_per_s < b.tflops_per_s;
  };
  const auto [least, most] = std::minmax_element(points.begin(), points.end(), slower);
  const bool wide = most->tflops_per_s > kWideRange * least->tflops_per_s;
  add("throughput", "Throughput against sequence length", {"TFLOP/s", Unit::kNone, wide},
      [](const Point& p) { return p.tflops_per_s; });
  for (Curve& curve : roofline(points)) figures.back().curves.push_back(std::move(curve));
  if (std::all_of(points.begin(), points.end(), [](const Point& p) { return p.peak_bytes == 0; }))
    return;  // peers do not say
  add("memory", "Peak device memory against sequence length",
      {"device memory: q, k, v, o, lse, workspace", Unit::kBytes, true},
      [](const Point& p) { return p.peak_bytes; });
  figures.back().curves = without_doubles(std::move(figures.back().curves));
  for (Curve& curve : baseline(points, naming)) figures.back().curves.push_back(std::move(curve));
}

std::string queries_text(const Point& point) {
  return point.seqlen == 1 ? "1 query" : fmt::format("{} queries", point.seqlen);
}

/// Time against the length of a cache: a line for each number of queries that has several, beside
/// what the memory takes for the tensors of each point.
void add_cache_figure(const std::vector<Point>& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  std::vector<Point> caches;
  std::copy_if(points.begin(), points.end(), std::back_inserter(caches),
               [](const Point& point) { return point.seqlen < point.seqlen_kv; });
  if (caches.empty()) return;
  const Naming naming = naming_of(caches);
  const bool queries = values(caches, &Point::seqlen).size() > 1;
  const auto name = [&](const Point& point) {
    return naming.name(point) + (queries ? ", " + queries_text(point) : "");
  };
  const auto keys = [](const Point& point) { return point.seqlen_kv; };
  std::vector<Curve> curves = curves_of(
      caches, name, keys, [](const Point& p) { return p.time_us * 1e-6; }, true);
  std::erase_if(curves, [](const Curve& curve) { return curve.points.size() < 2; });
  if (curves.empty()) return;
  const std::set<std::string> gpus = values(caches, &Point::gpu);
  const DeviceFacts* const gpu = gpus.size() == 1 ? gpu_named(*gpus.begin()) : nullptr;
  const bool bytes_known = std::all_of(caches.begin(), caches.end(),
                                       [](const Point& p) { return p.gbytes_per_s > 0; });
  if (gpu != nullptr && bytes_known) {
    const double limit = memory_gb_per_s(*gpu);
    const Naming sizes{
        .family = false, .head_dim = naming.head_dim, .batch = naming.batch, .strategy = false};
    const auto name_of_limit = [&](const Point& point) {
      const std::string size = sizes.name(point);
      return fmt::format("memory: {:.1f} TB/s", limit / 1000) + (size.empty() ? "" : ", " + size) +
             (queries ? ", " + queries_text(point) : "");
    };
    for (Curve& curve : curves_of(caches, name_of_limit, keys, [&](const Point& p) {
           return p.time_us * 1e-6 * p.gbytes_per_s / limit;
         })) {
      if (curve.points.size() < 2) continue;
      curve.look = Curve::Look::kComputed;
      curves.push_back(std::move(curve));
    }
  }
  figures.push_back({.file = "cache" + suffix,
                     .title = "Time against cache length",
                     .subtitle = shared_words(caches, naming, false),
                     .note = note_of(caches),
                     .x = {"keys of a sequence", Unit::kNone, true},
                     .y = {"time of a call", Unit::kSeconds, true},
                     .curves = std::move(curves)});
}

constexpr std::size_t kMostLines = 8;  // that a reader tells apart; beyond, a figure a head dim

std::map<int, std::vector<Point>> by_head_dim(const std::vector<Point>& points) {
  std::map<int, std::vector<Point>> parts;
  for (const Point& point : points) parts[point.head_dim].push_back(point);
  return parts;
}

constexpr const char* kPaddedStrategy = "standard";

int padded(int head_dim) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(head_dim)));
}

/// The time of the same problem padded to the next power of two; nullptr if no row has it.
const Point* padded_point(const std::vector<Point>& points, const Point& point) {
  const Point* wider = nullptr;
  for (const Point& other : points) {
    if (other.batch != point.batch || other.seqlen != point.seqlen) continue;
    if (other.strategy == kPaddedStrategy && other.head_dim == point.head_dim) return &other;
    if (other.family == point.family && other.head_dim == padded(point.head_dim) &&
        other.strategy == point.strategy)
      wider = &other;
  }
  return wider;
}

void add_waste_figure(const std::vector<Point>& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  const Naming all = naming_of(points);
  const bool lengths = values(points, &Point::seqlen).size() > 1;
  std::map<std::string, Curve> measured;
  std::vector<std::string> names;
  Curve arithmetic{
      .name = "1 - D / next power of two", .points = {}, .look = Curve::Look::kComputed};
  const std::set<int> head_dims = values(points, &Point::head_dim);
  for (int head_dim = *head_dims.begin(); head_dim <= *head_dims.rbegin(); ++head_dim) {
    arithmetic.points.emplace_back(head_dim, 100.0 * (1 - double(head_dim) / padded(head_dim)));
    if (head_dim != padded(head_dim) || head_dim == *head_dims.rbegin()) continue;
    // One more, and half of the work is waste.
    arithmetic.points.emplace_back(head_dim, std::nan(""));
    arithmetic.points.emplace_back(head_dim, 50.0);
  }
  for (const Point& point : points) {
    const Point* const wide = padded_point(points, point);
    if (wide == nullptr || point.strategy == kPaddedStrategy) continue;
    if (point.head_dim == padded(point.head_dim)) continue;  // nothing is padded
    Naming naming = all;
    naming.family = !all.strategy || values(points, &Point::family).size() > 1;
    naming.head_dim = false;
    std::string name = naming.name(point);
    if (lengths) name += fmt::format(", seqlen {}", point.seqlen);
    if (!measured.count(name)) names.push_back(name);
    Curve& curve = measured[name];
    curve.name = name;
    curve.look = Curve::Look::kMarks;
    curve.points.emplace_back(point.head_dim, 100 * (1 - point.time_us / wide->time_us));
  }
  const bool any_padding = std::any_of(head_dims.begin(), head_dims.end(),
                                       [](int head_dim) { return head_dim != padded(head_dim); });
  if (!any_padding || measured.empty()) return;
  Figure figure{.file = "padding_waste" + suffix,
                .title = "Time that padding to a power of two wastes",
                .subtitle = shared_words(points, all, true),
                .note = note_of(points),
                .x = {"head dim D", Unit::kNone, false},
                .y = {"share of the padded time", Unit::kPercent, false},
                .curves = {}};
  for (const std::string& name : names) {
    Curve& curve = measured[name];
    std::sort(curve.points.begin(), curve.points.end());
    figure.curves.push_back(std::move(curve));
  }
  figure.curves.push_back(std::move(arithmetic));
  figures.push_back(std::move(figure));
}

/// The time of the fastest row without a block mask; 0: there is none.
double dense_time(const std::vector<Point>& points) {
  double best = 0;
  for (const Point& point : points) {
    if (point.blocks.empty() && (best == 0 || point.time_us < best)) best = point.time_us;
  }
  return best;
}

/// `points` are of one problem, with block masks of several densities.
Figure density_figure(const std::vector<Point>& points, const std::string& suffix) {
  std::vector<Point> masked;
  std::copy_if(points.begin(), points.end(), std::back_inserter(masked),
               [](const Point& point) { return !point.blocks.empty(); });
  const bool families = values(masked, &Point::family).size() > 1;
  const auto name = [&](const Point& point) {
    return "blocks of " + point.blocks + (families ? ", " + point.family : "");
  };
  Figure figure{.file = "density" + suffix,
                .title = "Time against the density of a block mask",
                .subtitle = points.front().unmasked,
                .note = note_of(points),
                .x = {"share of blocks present", Unit::kPercent, false},
                .y = {"time of a call", Unit::kSeconds, false},
                .curves = curves_of(
                    masked, name, [](const Point& p) { return 100 * p.density; },
                    [](const Point& p) { return p.time_us * 1e-6; }, true)};
  const double dense = dense_time(points) * 1e-6;
  if (dense == 0) return figure;
  std::set<double> densities = values(masked, &Point::density);
  Curve whole{.name = "without a mask", .points = {}, .look = Curve::Look::kComputed},
      ideal{.name = "ideal: that times the density", .points = {}, .look = Curve::Look::kComputed};
  for (const double density : densities) {
    whole.points.emplace_back(100 * density, dense);
    ideal.points.emplace_back(100 * density, dense * density);
  }
  figure.curves.push_back(std::move(whole));
  figure.curves.push_back(std::move(ideal));
  return figure;
}

/// One for each problem that there is with block masks of two densities or more.
void add_density_figures(const std::vector<Point>& points, std::vector<Figure>& figures) {
  std::map<std::string, std::vector<Point>> problems;
  std::vector<std::string> order;
  for (const Point& point : points) {
    if (!problems.count(point.unmasked)) order.push_back(point.unmasked);
    problems[point.unmasked].push_back(point);
  }
  std::erase_if(order, [&](const std::string& problem) {
    std::set<double> densities = values(problems[problem], &Point::density);
    densities.erase(0.0);
    return densities.size() < 2;
  });
  for (std::size_t i = 0; i < order.size(); ++i) {
    figures.push_back(
        density_figure(problems[order[i]], order.size() == 1 ? "" : fmt::format("_{}", i + 1)));
  }
}

}  // namespace

std::vector<Figure> sweep_figures(const Table& rows) {
  std::map<std::string, std::vector<Point>> groups;
  std::vector<std::string> order;
  std::vector<Point> all = points_of(rows);
  std::vector<Figure> figures;
  add_density_figures(all, figures);
  for (Point& point : all) {
    if (!groups.count(point.group)) order.push_back(point.group);
    groups[point.group].push_back(std::move(point));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::vector<Point>& points = groups[order[i]];
    const std::string suffix = order.size() == 1 ? "" : fmt::format("_{}", i + 1);
    const Naming naming = naming_of(points);
    const auto curves = curves_of(
        points, [&](const Point& p) { return naming.name(p); },
        [](const Point& p) { return p.seqlen; }, [](const Point& p) { return p.time_us; });
    if (has_a_line(curves)) {
      if (naming.family && naming.head_dim && curves.size() > kMostLines) {
        for (const auto& [head_dim, some] : by_head_dim(points))
          add_length_figures(some, fmt::format("{}_d{}", suffix, head_dim), figures);
      } else {
        add_length_figures(points, suffix, figures);
      }
    }
    add_cache_figure(points, suffix, figures);
    add_waste_figure(points, suffix, figures);
  }
  if (figures.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "no figure can be made of these rows: they need at least two sequence lengths of a "
                "line (seqlen=512,1024,2048 or seqlen=1:2048,1:8192), a head dim and the next "
                "power of two (head_dim=96,128), or "
                "two densities of a block mask (--density 0.25,0.5) that worked");
  }
  return figures;
}

}  // namespace attnforge::cli
