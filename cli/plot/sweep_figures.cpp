#include "cli/plot/sweep_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <set>

#include "attnforge/error.h"
#include "attnforge/provenance.h"
#include "cli/output/roofs.h"
#include "cli/plot/points.h"

namespace attnforge::cli {
namespace {

template <class Value>
std::set<Value> values(const std::vector<SweepPoint>& points, Value SweepPoint::*member) {
  std::set<Value> all;
  for (const SweepPoint& point : points) all.insert(point.*member);
  return all;
}

/// Whether the batch says more than the length does: sweeps of a fixed number of tokens have one
/// batch for each length.
bool batch_tells_lines_apart(const std::vector<SweepPoint>& points) {
  std::map<double, int> batch_of;
  for (const SweepPoint& point : points) {
    const auto [known, is_new] = batch_of.try_emplace(point.seqlen, point.batch);
    if (!is_new && known->second != point.batch) return true;
  }
  return false;
}

/// What tells the points of one figure apart, by the name that the legend has.
struct Naming {
  bool family, head_dim, batch;

  std::string name(const SweepPoint& point) const {
    std::string text = family ? point.family : "";
    const auto add = [&](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
    if (head_dim) add(fmt::format("head_dim {}", point.head_dim));
    if (batch) add(fmt::format("batch {}", point.batch));
    return text;
  }
};

Naming naming_of(const std::vector<SweepPoint>& points) {
  Naming naming{};
  naming.head_dim = values(points, &SweepPoint::head_dim).size() > 1;
  naming.batch = batch_tells_lines_apart(points);
  naming.family = values(points, &SweepPoint::family).size() > 1 ||
                  !(naming.head_dim || naming.batch);
  return naming;
}

/// What all points share, as the second line of a title.
std::string shared_words(const std::vector<SweepPoint>& points, const Naming& naming,
                         bool head_dim_axis) {
  std::string text = points.front().group;
  if (!naming.head_dim && !head_dim_axis)
    text += fmt::format(" head_dim={}", points.front().head_dim);
  std::set<double> tokens;
  for (const SweepPoint& point : points) tokens.insert(point.batch * point.seqlen);
  if (values(points, &SweepPoint::batch).size() == 1)
    text += fmt::format(" batch={}", points.front().batch);
  else if (tokens.size() == 1)
    text += fmt::format(", {} tokens at each length", *tokens.begin());
  if (!naming.family) text += ", " + points.front().family;
  return text;
}

/// Whether the configs were tuned, as far as rows say.
std::string tuned_text(const std::vector<SweepPoint>& points) {
  int tuned = 0, untuned = 0;
  for (const SweepPoint& point : points) {
    if (point.provenance.empty()) continue;
    const bool measured = point.provenance == to_string(Provenance::kMeasured) ||
                          point.provenance == to_string(Provenance::kCompatible);
    ++(measured ? tuned : untuned);
  }
  if (tuned == 0) return untuned == 0 ? "" : "untuned";
  return untuned == 0 ? "tuned" : fmt::format("{} of {} tuned", tuned, tuned + untuned);
}

std::string note_of(const std::vector<SweepPoint>& points) {
  const std::set<std::string> gpus = values(points, &SweepPoint::gpu),
                              dates = values(points, &SweepPoint::date);
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
std::vector<Curve> curves_of(const std::vector<SweepPoint>& points,
                             const std::function<std::string(const SweepPoint&)>& name,
                             const std::function<double(const SweepPoint&)>& x,
                             const std::function<double(const SweepPoint&)>& y,
                             bool errors = false) {
  std::vector<std::string> names;  // in the order of the rows
  std::map<std::string, std::map<double, const SweepPoint*>> lines;
  for (const SweepPoint& point : points) {
    const std::string line = name(point);
    if (!lines.count(line)) names.push_back(line);
    const auto [place, is_new] = lines[line].try_emplace(x(point), &point);
    if (!is_new && point.time_us < place->second->time_us) place->second = &point;
  }
  std::vector<Curve> curves;
  for (const std::string& line : names) {
    Curve curve{.name = line, .points = {}};
    for (const auto& [at, point] : lines[line]) curve.points.emplace_back(at, y(*point));
    // Error bars of times and of what is 1 / time: half of the interquartile range to either side.
    const bool all_known = std::all_of(lines[line].begin(), lines[line].end(),
                                       [](const auto& each) { return each.second->noise > 0; });
    for (std::size_t i = 0; errors && all_known && i < curve.points.size(); ++i) {
      const SweepPoint& point = *std::next(lines[line].begin(), static_cast<std::ptrdiff_t>(i))
                                     ->second;
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
std::vector<Curve> baseline(const std::vector<SweepPoint>& points, const Naming& naming) {
  const Naming sizes{.family = false, .head_dim = naming.head_dim, .batch = naming.batch};
  const auto name = [&](const SweepPoint& point) {
    const std::string size = sizes.name(point);
    return "O(L^2): scores in fp32" + (size.empty() ? "" : ", " + size);
  };
  std::vector<Curve> curves = curves_of(
      points, name, [](const SweepPoint& p) { return p.seqlen; },
      [](const SweepPoint& p) { return p.quadratic_bytes; });
  for (Curve& curve : curves) curve.look = Curve::Look::kComputed;
  return curves;
}

/// What the GPU's arithmetic and memory allow at each length: nothing for a GPU that is not known.
std::vector<Curve> roofline(const std::vector<SweepPoint>& points) {
  const std::set<std::string> gpus = values(points, &SweepPoint::gpu);
  const DeviceFacts* const gpu = gpus.size() == 1 ? gpu_named(*gpus.begin()) : nullptr;
  const std::set<DType> dtypes = values(points, &SweepPoint::dtype);
  if (gpu == nullptr || dtypes.size() != 1) return {};
  const Roof peak = roofs(*gpu, *dtypes.begin()).front();
  std::map<double, double> bound;
  for (const SweepPoint& point : points) {
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

void add_length_figures(const std::vector<SweepPoint>& points, const std::string& suffix,
                        std::vector<Figure>& figures) {
  const Naming naming = naming_of(points);
  const auto name = [&](const SweepPoint& point) { return naming.name(point); };
  const auto seqlen = [](const SweepPoint& point) { return point.seqlen; };
  const PlotAxis lengths{"sequence length (tokens)", Unit::kNone, true};
  const auto add = [&](const std::vector<SweepPoint>& drawn, const char* file, const char* title,
                       const PlotAxis& y, const std::function<double(const SweepPoint&)>& value) {
    figures.push_back({.file = file + suffix,
                       .title = title,
                       .subtitle = shared_words(drawn, naming, false),
                       .note = note_of(drawn),
                       .x = lengths,
                       .y = y,
                       .curves = curves_of(drawn, name, seqlen, value, y.unit != Unit::kBytes)});
  };
  add(points, "latency", "Latency against sequence length",
      {"time of a call", Unit::kSeconds, true},
      [](const SweepPoint& p) { return p.time_us * 1e-6; });
  // Runs whose operations cannot be counted have times alone.
  std::vector<SweepPoint> counted = points;
  std::erase_if(counted, [](const SweepPoint& p) { return !(p.tflops_per_s > 0); });
  if (!counted.empty()) {
    const auto [least, most] = std::ranges::minmax_element(counted, {}, &SweepPoint::tflops_per_s);
    const bool wide = most->tflops_per_s > kWideRange * least->tflops_per_s;
    add(counted, "throughput", "Throughput against sequence length", {"TFLOP/s", Unit::kNone, wide},
        [](const SweepPoint& p) { return p.tflops_per_s; });
    for (Curve& curve : roofline(counted)) figures.back().curves.push_back(std::move(curve));
  }
  if (std::all_of(points.begin(), points.end(),
                  [](const SweepPoint& p) { return p.peak_bytes == 0; }))
    return;  // peers do not say
  add(points, "memory", "Peak device memory against sequence length",
      {"device memory: q, k, v, o, lse, workspace", Unit::kBytes, true},
      [](const SweepPoint& p) { return p.peak_bytes; });
  figures.back().curves = without_doubles(std::move(figures.back().curves));
  for (Curve& curve : baseline(points, naming)) figures.back().curves.push_back(std::move(curve));
}

std::string queries_text(const SweepPoint& point) {
  return point.seqlen == 1 ? "1 query" : fmt::format("{} queries", point.seqlen);
}

/// Time against the length of a cache: a line for each number of queries that has several, next to
/// what the memory takes for the tensors of each point.
void add_cache_figure(const std::vector<SweepPoint>& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  std::vector<SweepPoint> caches;
  std::copy_if(points.begin(), points.end(), std::back_inserter(caches),
               [](const SweepPoint& point) { return point.seqlen < point.seqlen_kv; });
  if (caches.empty()) return;
  const Naming naming = naming_of(caches);
  const bool queries = values(caches, &SweepPoint::seqlen).size() > 1;
  const auto name = [&](const SweepPoint& point) {
    return naming.name(point) + (queries ? ", " + queries_text(point) : "");
  };
  const auto keys = [](const SweepPoint& point) { return point.seqlen_kv; };
  std::vector<Curve> curves = curves_of(
      caches, name, keys, [](const SweepPoint& p) { return p.time_us * 1e-6; }, true);
  std::erase_if(curves, [](const Curve& curve) { return curve.points.size() < 2; });
  if (curves.empty()) return;
  const std::set<std::string> gpus = values(caches, &SweepPoint::gpu);
  const DeviceFacts* const gpu = gpus.size() == 1 ? gpu_named(*gpus.begin()) : nullptr;
  const bool bytes_known = std::all_of(caches.begin(), caches.end(),
                                       [](const SweepPoint& p) { return p.gbytes_per_s > 0; });
  if (gpu != nullptr && bytes_known) {
    const double limit = memory_gb_per_s(*gpu);
    const Naming sizes{.family = false, .head_dim = naming.head_dim, .batch = naming.batch};
    const auto name_of_limit = [&](const SweepPoint& point) {
      const std::string size = sizes.name(point);
      return fmt::format("memory: {:.1f} TB/s", limit / 1000) + (size.empty() ? "" : ", " + size) +
             (queries ? ", " + queries_text(point) : "");
    };
    for (Curve& curve : curves_of(caches, name_of_limit, keys, [&](const SweepPoint& p) {
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

std::map<int, std::vector<SweepPoint>> by_head_dim(const std::vector<SweepPoint>& points) {
  std::map<int, std::vector<SweepPoint>> parts;
  for (const SweepPoint& point : points) parts[point.head_dim].push_back(point);
  return parts;
}

int padded(int head_dim) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(head_dim)));
}

/// The time of the same problem padded to the next power of two; nullptr if no row has it.
const SweepPoint* padded_point(const std::vector<SweepPoint>& points, const SweepPoint& point) {
  const SweepPoint* wider = nullptr;
  for (const SweepPoint& other : points) {
    if (other.batch != point.batch || other.seqlen != point.seqlen) continue;
    if (other.family == point.family && other.head_dim == padded(point.head_dim)) wider = &other;
  }
  return wider;
}

void add_waste_figure(const std::vector<SweepPoint>& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  const Naming all = naming_of(points);
  const bool lengths = values(points, &SweepPoint::seqlen).size() > 1;
  std::map<std::string, Curve> measured;
  std::vector<std::string> names;
  Curve arithmetic{
      .name = "1 - D / next power of two", .points = {}, .look = Curve::Look::kComputed};
  const std::set<int> head_dims = values(points, &SweepPoint::head_dim);
  for (int head_dim = *head_dims.begin(); head_dim <= *head_dims.rbegin(); ++head_dim) {
    arithmetic.points.emplace_back(head_dim, 100.0 * (1 - double(head_dim) / padded(head_dim)));
    if (head_dim != padded(head_dim) || head_dim == *head_dims.rbegin()) continue;
    // One more, and half of the work is waste.
    arithmetic.points.emplace_back(head_dim, std::nan(""));
    arithmetic.points.emplace_back(head_dim, 50.0);
  }
  for (const SweepPoint& point : points) {
    const SweepPoint* const wide = padded_point(points, point);
    if (wide == nullptr) continue;
    if (point.head_dim == padded(point.head_dim)) continue;  // nothing is padded
    Naming naming = all;
    naming.family = true;
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
double dense_time(const std::vector<SweepPoint>& points) {
  double best = 0;
  for (const SweepPoint& point : points) {
    if (point.blocks.empty() && (best == 0 || point.time_us < best)) best = point.time_us;
  }
  return best;
}

/// `points` are of one problem, with block masks of several densities.
Figure density_figure(const std::vector<SweepPoint>& points, const std::string& suffix) {
  std::vector<SweepPoint> masked;
  std::copy_if(points.begin(), points.end(), std::back_inserter(masked),
               [](const SweepPoint& point) { return !point.blocks.empty(); });
  const bool families = values(masked, &SweepPoint::family).size() > 1;
  const auto name = [&](const SweepPoint& point) {
    return "blocks of " + point.blocks + (families ? ", " + point.family : "");
  };
  Figure figure{.file = "density" + suffix,
                .title = "Time against the density of a block mask",
                .subtitle = points.front().unmasked,
                .note = note_of(points),
                .x = {"share of blocks present", Unit::kPercent, false},
                .y = {"time of a call", Unit::kSeconds, false},
                .curves = curves_of(
                    masked, name, [](const SweepPoint& p) { return 100 * p.density; },
                    [](const SweepPoint& p) { return p.time_us * 1e-6; }, true)};
  const double dense = dense_time(points) * 1e-6;
  if (dense == 0) return figure;
  std::set<double> densities = values(masked, &SweepPoint::density);
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
void add_density_figures(const std::vector<SweepPoint>& points, std::vector<Figure>& figures) {
  std::map<std::string, std::vector<SweepPoint>> problems;
  std::vector<std::string> order;
  for (const SweepPoint& point : points) {
    if (!problems.count(point.unmasked)) order.push_back(point.unmasked);
    problems[point.unmasked].push_back(point);
  }
  std::erase_if(order, [&](const std::string& problem) {
    std::set<double> densities = values(problems[problem], &SweepPoint::density);
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
  std::map<std::string, std::vector<SweepPoint>> groups;
  std::vector<std::string> order;
  std::vector<SweepPoint> all = sweep_points(rows);
  std::vector<Figure> figures;
  add_density_figures(all, figures);
  for (SweepPoint& point : all) {
    if (!groups.count(point.group)) order.push_back(point.group);
    groups[point.group].push_back(std::move(point));
  }
  for (std::size_t i = 0; i < order.size(); ++i) {
    const std::vector<SweepPoint>& points = groups[order[i]];
    const std::string suffix = order.size() == 1 ? "" : fmt::format("_{}", i + 1);
    const Naming naming = naming_of(points);
    const auto curves = curves_of(
        points, [&](const SweepPoint& p) { return naming.name(p); },
        [](const SweepPoint& p) { return p.seqlen; },
        [](const SweepPoint& p) { return p.time_us; });
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
