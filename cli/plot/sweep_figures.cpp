#include "cli/plot/sweep_figures.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <map>
#include <set>
#include <tuple>

#include "attnforge/provenance.h"
#include "cli/options/gpus.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

using Points = std::vector<SweepPoint>;
using Text = std::function<std::string(const SweepPoint&)>;
using Number = std::function<double(const SweepPoint&)>;

template <class Value>
std::set<Value> values(const Points& points, Value SweepPoint::*member) {
  std::set<Value> all;
  for (const SweepPoint& point : points) all.insert(point.*member);
  return all;
}

/// The points of each text, in the order in which the texts come.
std::vector<std::pair<std::string, Points>> grouped(const Points& points, const Text& text) {
  std::vector<std::pair<std::string, Points>> groups;
  for (const SweepPoint& point : points) {
    const std::string name = text(point);
    auto group = std::ranges::find(groups, name, &std::pair<std::string, Points>::first);
    if (group == groups.end()) group = groups.insert(group, {name, {}});
    group->second.push_back(point);
  }
  return groups;
}

double seconds_of(const SweepPoint& point) { return point.time_us * 1e-6; }

/// nullptr for several GPUs, and for one that is not known.
const DeviceFacts* gpu_of(const Points& points) {
  const std::set<std::string> gpus = values(points, &SweepPoint::gpu);
  return gpus.size() == 1 ? gpu_named(*gpus.begin()) : nullptr;
}

/// Whether the batch says more than the length does: sweeps of a fixed number of tokens have one
/// batch for each length.
bool batch_tells_lines_apart(const Points& points) {
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

  /// With a comma before each.
  std::string sizes(const SweepPoint& point) const {
    return (head_dim ? fmt::format(", head_dim {}", point.head_dim) : "") +
           (batch ? fmt::format(", batch {}", point.batch) : "");
  }
  std::string name(const SweepPoint& point) const {
    return family ? point.family + sizes(point) : sizes(point).substr(2);
  }
};

Naming naming_of(const Points& points) {
  Naming naming{};
  naming.head_dim = values(points, &SweepPoint::head_dim).size() > 1;
  naming.batch = batch_tells_lines_apart(points);
  naming.family = values(points, &SweepPoint::family).size() > 1 ||
                  !(naming.head_dim || naming.batch);
  return naming;
}

/// What all points share, as the second line of a title.
std::string shared_words(const Points& points, const Naming& naming, bool head_dim_axis) {
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
std::string tuned_text(const Points& points) {
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

std::string note_of(const Points& points) {
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
std::vector<Curve> curves_of(const Points& points, const Text& name, const Number& x,
                             const Number& y, bool errors = false) {
  std::vector<Curve> curves;
  for (const auto& [line, own] : grouped(points, name)) {
    std::map<double, const SweepPoint*> fastest;
    for (const SweepPoint& point : own) {
      const SweepPoint*& at = fastest[x(point)];
      if (at == nullptr || point.time_us < at->time_us) at = &point;
    }
    const bool known = std::ranges::all_of(fastest,
                                           [](const auto& each) { return each.second->noise > 0; });
    Curve& curve = curves.emplace_back(Curve{.name = line, .points = {}});
    for (const auto& [at, point] : fastest) {
      curve.points.emplace_back(at, y(*point));
      // Error bars of times and of what is 1 / time: half of the interquartile range to either
      // side.
      if (errors && known) curve.errors.push_back(y(*point) * point->noise / 2);
    }
  }
  return curves;
}

void add_computed(std::vector<Curve> computed, std::vector<Curve>& curves) {
  for (Curve& curve : computed) {
    curve.look = Curve::Look::kComputed;
    curves.push_back(std::move(curve));
  }
}

/// One line for those that lie on each other: families that need no memory of their own.
std::vector<Curve> without_doubles(const std::vector<Curve>& curves) {
  std::vector<std::pair<Curve, int>> different;
  for (const Curve& curve : curves) {
    const auto same = std::ranges::find(different, curve.points,
                                        [](const auto& each) { return each.first.points; });
    if (same == different.end())
      different.emplace_back(curve, 0);
    else
      ++same->second;
  }
  std::vector<Curve> result;
  for (auto& [curve, others] : different) {
    if (others > 0) curve.name += fmt::format(" and {} more", others);
    result.push_back(std::move(curve));
  }
  return result;
}

/// What a kernel that materialises its scores would take: one line for each head dim and batch.
std::vector<Curve> baseline(const Points& points, const Naming& naming) {
  const auto name = [&](const SweepPoint& point) {
    return "O(L^2): scores in fp32" + naming.sizes(point);
  };
  return curves_of(points, name, &SweepPoint::seqlen, &SweepPoint::quadratic_bytes);
}

/// What the GPU's arithmetic and memory allow at each length: nothing for a GPU that is not known.
std::vector<Curve> roofline(const Points& points) {
  const DeviceFacts* const gpu = gpu_of(points);
  const std::set<DType> dtypes = values(points, &SweepPoint::dtype);
  if (gpu == nullptr || dtypes.size() != 1) return {};
  const Roof peak = roofs(*gpu, *dtypes.begin()).front();
  std::map<double, double> bound;
  bool memory_binds = false;
  for (const SweepPoint& point : points) {
    const double memory = point.gbytes_per_s > 0
                              ? point.tflops_per_s * memory_gb_per_s(*gpu) / point.gbytes_per_s
                              : peak.tflops_per_s;
    double& at = bound[point.seqlen];
    at = std::max(at, std::min(memory, peak.tflops_per_s));
  }
  for (const auto& [seqlen, at] : bound) memory_binds = memory_binds || at < peak.tflops_per_s;
  return {{.name = "bound: " + peak.name + (memory_binds ? ", memory" : ""),
           .points = {bound.begin(), bound.end()}}};
}

void add_length_figures(const Points& points, const std::string& suffix,
                        std::vector<Figure>& figures) {
  constexpr double kWideRange = 100;  // beyond, a linear axis hides the slowest
  const Naming naming = naming_of(points);
  const auto add = [&](const Points& drawn, const char* file, const char* title, const PlotAxis& y,
                       const Number& value) {
    figures.push_back({.file = file + suffix,
                       .title = title,
                       .subtitle = shared_words(drawn, naming, false),
                       .note = note_of(drawn),
                       .x = {"sequence length (tokens)", Unit::kNone, true},
                       .y = y,
                       .curves = curves_of(drawn, std::bind_front(&Naming::name, naming),
                                           &SweepPoint::seqlen, value, y.unit != Unit::kBytes)});
  };
  add(points, "latency", "Latency against sequence length",
      {"time of a call", Unit::kSeconds, true}, seconds_of);
  // Runs whose operations cannot be counted have times alone.
  Points counted = points;
  std::erase_if(counted, [](const SweepPoint& p) { return !(p.tflops_per_s > 0); });
  if (!counted.empty()) {
    const auto [least, most] = std::ranges::minmax_element(counted, {}, &SweepPoint::tflops_per_s);
    const bool wide = most->tflops_per_s > kWideRange * least->tflops_per_s;
    add(counted, "throughput", "Throughput against sequence length", {"TFLOP/s", Unit::kNone, wide},
        &SweepPoint::tflops_per_s);
    add_computed(roofline(counted), figures.back().curves);
  }
  // Peers do not say how much memory they take.
  if (values(points, &SweepPoint::peak_bytes) == std::set<double>{0}) return;
  add(points, "memory", "Peak device memory against sequence length",
      {"device memory: q, k, v, o, lse, workspace", Unit::kBytes, true}, &SweepPoint::peak_bytes);
  figures.back().curves = without_doubles(figures.back().curves);
  add_computed(baseline(points, naming), figures.back().curves);
}

/// Time against the length of a cache: a line for each number of queries that has several, next to
/// what the memory takes for the tensors of each point.
void add_cache_figure(const Points& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  Points caches = points;
  std::erase_if(caches, [](const SweepPoint& point) { return point.seqlen >= point.seqlen_kv; });
  if (caches.empty()) return;
  const Naming naming = naming_of(caches);
  const bool several = values(caches, &SweepPoint::seqlen).size() > 1;
  const auto queries = [&](const SweepPoint& point) {
    return !several            ? ""
           : point.seqlen == 1 ? ", 1 query"
                               : fmt::format(", {} queries", point.seqlen);
  };
  const auto lines = [&](const Text& name, const Number& y, bool errors) {
    std::vector<Curve> curves = curves_of(
        caches, [&](const SweepPoint& point) { return name(point) + queries(point); },
        &SweepPoint::seqlen_kv, y, errors);
    std::erase_if(curves, [](const Curve& curve) { return curve.points.size() < 2; });
    return curves;
  };
  std::vector<Curve> curves = lines(std::bind_front(&Naming::name, naming), seconds_of, true);
  if (curves.empty()) return;
  const DeviceFacts* const gpu = gpu_of(caches);
  if (gpu != nullptr &&
      std::ranges::all_of(caches, [](const SweepPoint& p) { return p.gbytes_per_s > 0; })) {
    const double limit = memory_gb_per_s(*gpu);
    const auto name = [&](const SweepPoint& point) {
      return fmt::format("memory: {:.1f} TB/s", limit / 1000) + naming.sizes(point);
    };
    const auto time = [&](const SweepPoint& p) { return seconds_of(p) * p.gbytes_per_s / limit; };
    add_computed(lines(name, time, false), curves);
  }
  figures.push_back({.file = "cache" + suffix,
                     .title = "Time against cache length",
                     .subtitle = shared_words(caches, naming, false),
                     .note = note_of(caches),
                     .x = {"keys of a sequence", Unit::kNone, true},
                     .y = {"time of a call", Unit::kSeconds, true},
                     .curves = std::move(curves)});
}

/// The end of the names of files of one of several figures: "_2".
std::string numbered(std::size_t index, std::size_t count) {
  return count == 1 ? "" : fmt::format("_{}", index + 1);
}

int padded(int head_dim) {
  return static_cast<int>(std::bit_ceil(static_cast<unsigned>(head_dim)));
}

/// The row of the same problem padded to the next power of two; nullptr if there is none.
const SweepPoint* padded_point(const Points& points, const SweepPoint& point) {
  const auto same = [](const SweepPoint& p, int head_dim) {
    return std::tuple(p.batch, p.seqlen, p.family, head_dim);
  };
  const SweepPoint* wider = nullptr;
  for (const SweepPoint& other : points)
    if (same(other, other.head_dim) == same(point, padded(point.head_dim))) wider = &other;
  return wider;
}

/// The share of the padded time that head dims waste by arithmetic: a jump after each power of two,
/// where one more makes half of the work waste.
Curve waste_by_arithmetic(int first, int last) {
  Curve curve{.name = "1 - D / next power of two", .points = {}, .look = Curve::Look::kComputed};
  for (int head_dim = first; head_dim <= last; ++head_dim) {
    curve.points.emplace_back(head_dim, 100.0 * (1 - double(head_dim) / padded(head_dim)));
    if (head_dim != padded(head_dim) || head_dim == last) continue;
    curve.points.emplace_back(head_dim, std::nan(""));
    curve.points.emplace_back(head_dim, 50.0);
  }
  return curve;
}

void add_waste_figure(const Points& points, const std::string& suffix,
                      std::vector<Figure>& figures) {
  const Naming all = naming_of(points);
  const bool lengths = values(points, &SweepPoint::seqlen).size() > 1;
  Points wasteful = points;
  std::erase_if(wasteful, [&](const SweepPoint& point) {
    return point.head_dim == padded(point.head_dim) || padded_point(points, point) == nullptr;
  });
  if (wasteful.empty()) return;
  const auto name = [&](const SweepPoint& point) {
    return Naming{.family = true, .head_dim = false, .batch = all.batch}.name(point) +
           (lengths ? fmt::format(", seqlen {}", point.seqlen) : "");
  };
  Figure figure{.file = "padding_waste" + suffix,
                .title = "Time that padding to a power of two wastes",
                .subtitle = shared_words(points, all, true),
                .note = note_of(points),
                .x = {"head dim D", Unit::kNone, false},
                .y = {"share of the padded time", Unit::kPercent, false},
                .curves = {}};
  for (const auto& [line, own] : grouped(wasteful, name)) {
    Curve& curve = figure.curves.emplace_back(
        Curve{.name = line, .points = {}, .look = Curve::Look::kMarks});
    for (const SweepPoint& point : own) {
      const double wide_us = padded_point(points, point)->time_us;
      curve.points.emplace_back(point.head_dim, 100 * (1 - point.time_us / wide_us));
    }
    std::ranges::sort(curve.points);
  }
  const std::set<int> head_dims = values(points, &SweepPoint::head_dim);
  figure.curves.push_back(waste_by_arithmetic(*head_dims.begin(), *head_dims.rbegin()));
  figures.push_back(std::move(figure));
}

/// `points` are of one problem, with block masks of several densities.
Figure density_figure(const Points& points, const std::string& suffix) {
  Points masked = points, dense = points;
  std::erase_if(masked, [](const SweepPoint& point) { return point.blocks.empty(); });
  std::erase_if(dense, [](const SweepPoint& point) { return !point.blocks.empty(); });
  const bool families = values(masked, &SweepPoint::family).size() > 1;
  const auto name = [&](const SweepPoint& point) {
    return "blocks of " + point.blocks + (families ? ", " + point.family : "");
  };
  const auto percent = [](const SweepPoint& point) { return 100 * point.density; };
  Figure figure{.file = "density" + suffix,
                .title = "Time against the density of a block mask",
                .subtitle = points.front().unmasked,
                .note = note_of(points),
                .x = {"share of blocks present", Unit::kPercent, false},
                .y = {"time of a call", Unit::kSeconds, false},
                .curves = curves_of(masked, name, percent, seconds_of, true)};
  if (dense.empty()) return figure;
  const double time = seconds_of(*std::ranges::min_element(dense, {}, &SweepPoint::time_us));
  add_computed(curves_of(
                   masked, [](const SweepPoint&) { return "without a mask"; }, percent,
                   [&](const SweepPoint&) { return time; }),
               figure.curves);
  add_computed(curves_of(
                   masked, [](const SweepPoint&) { return "ideal: that times the density"; },
                   percent, [&](const SweepPoint& point) { return time * point.density; }),
               figure.curves);
  return figure;
}

/// One for each problem that there is with block masks of two densities or more.
void add_density_figures(const Points& points, std::vector<Figure>& figures) {
  auto problems = grouped(points, &SweepPoint::unmasked);
  std::erase_if(problems, [](const auto& problem) {
    std::set<double> densities = values(problem.second, &SweepPoint::density);
    densities.erase(0.0);
    return densities.size() < 2;
  });
  for (std::size_t i = 0; i < problems.size(); ++i)
    figures.push_back(density_figure(problems[i].second, numbered(i, problems.size())));
}

}  // namespace

std::vector<Figure> sweep_figures(const Table& rows) {
  constexpr std::size_t kMostLines = 8;  // that a reader tells apart; beyond, a figure a head dim
  const Points all = sweep_points(rows);
  std::vector<Figure> figures;
  add_density_figures(all, figures);
  const auto groups = grouped(all, &SweepPoint::group);
  for (std::size_t i = 0; i < groups.size(); ++i) {
    const Points& points = groups[i].second;
    const std::string suffix = numbered(i, groups.size());
    const Naming naming = naming_of(points);
    const auto curves = curves_of(points, std::bind_front(&Naming::name, naming),
                                  &SweepPoint::seqlen, &SweepPoint::time_us);
    const bool has_a_line = std::ranges::any_of(
        curves, [](const Curve& curve) { return curve.points.size() > 1; });
    if (has_a_line && naming.family && naming.head_dim && curves.size() > kMostLines) {
      for (const int head_dim : values(points, &SweepPoint::head_dim)) {
        Points own = points;
        std::erase_if(own, [&](const SweepPoint& point) { return point.head_dim != head_dim; });
        add_length_figures(own, fmt::format("{}_d{}", suffix, head_dim), figures);
      }
    } else if (has_a_line) {
      add_length_figures(points, suffix, figures);
    }
    add_cache_figure(points, suffix, figures);
    add_waste_figure(points, suffix, figures);
  }
  if (figures.empty()) {
    refuse(kInvalidArgument,
           "no figure can be made of these rows: they need at least two sequence lengths of a line "
           "(seqlen=512,1024,2048 or seqlen=1:2048,1:8192), a head dim and the next power of two "
           "(head_dim=96,128), or two densities of a block mask (--density 0.25,0.5) that worked");
  }
  return figures;
}

}  // namespace attnforge::cli
