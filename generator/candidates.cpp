// candidates.cpp - the product of a family's axes, cut and ordered.
#include "generator/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attnforge/error.h"

namespace attnforge {
namespace {

/// Whether no point of a search space has a value that is not allowed: then none need be looked at
/// for that. What is forced may be one, and a number of heads that no tile can pack.
bool all_allowed(const std::vector<Axis>& axes, std::span<const FieldRule> rules) {
  for (std::size_t i = 0; i < std::min(axes.size(), rules.size()); ++i) {
    for (const int value : axes[i].values) {
      if (!rules[i].allowed.has(value)) return false;
    }
  }
  return true;
}

/// Calls visit(config, reason) for every point of the search space, the last axis fastest. The
/// config is one object that is changed from point to point. A family that cannot be forced has one
/// point, of no fields, cut for that reason.
template <class Visit>
void for_each_point(const Family& family, const Problem& problem, const DeviceFacts& device,
                    const Overrides& overrides, Visit&& visit) {
  std::vector<Axis> axes = family.axes(problem, device);
  Config config{std::string(family.name), {}};
  if (const std::string reason = force_axes(axes, overrides); !reason.empty())
    return visit(std::as_const(config), reason);
  config.fields.reserve(axes.size());
  for (const Axis& axis : axes) {
    ATTNFORGE_ASSERT(!axis.values.empty(), "every axis has at least one value");
    config.fields.emplace_back(axis.name, axis.values.front());
  }
  const bool allowed = all_allowed(axes, family.fields);
  std::vector<std::size_t> at(axes.size(), 0);
  for (;;) {
    std::string reason = allowed ? "" : wrong_value(config, family.fields);
    if (reason.empty()) reason = family.reject(config, problem, device);
    visit(std::as_const(config), std::move(reason));
    std::size_t axis = axes.size();
    while (axis > 0) {  // count up, as with the digits of a number
      --axis;
      at[axis] = (at[axis] + 1) % axes[axis].values.size();
      config.fields[axis].second = axes[axis].values[at[axis]];
      if (at[axis] != 0) break;
      if (axis == 0) return;
    }
    if (axes.empty()) return;
  }
}

double estimate(const Family& family, const Config& config, const Problem& problem,
                const DeviceFacts& device) {
  const double time_us = family.estimate_us(config, problem, device);
  ATTNFORGE_ASSERT(std::isfinite(time_us),
                   "an estimate is a finite number");  // else the order would not be one
  return time_us;
}

}  // namespace

std::string rejection(const Family& family, const Problem& problem, const Arch& arch) {
  const Features missing = required_features(problem) & ~family.features;
  if (missing != 0) return fmt::format("does not have {}", fmt::join(feature_names(missing), ", "));
  return family.supports(problem, arch);
}

std::string illegal(const Family& family, const Config& config, const Problem& problem,
                    const DeviceFacts& device) {
  const std::vector<Axis> axes = family.axes(problem, device);
  if (axes.size() != config.fields.size()) {
    return fmt::format("it has {} fields, {} has {}", config.fields.size(), family.name,
                       axes.size());
  }
  for (std::size_t i = 0; i < axes.size(); ++i) {
    const auto& [name, value] = config.fields[i];
    if (name != axes[i].name)
      return fmt::format("field {} is \"{}\", not \"{}\"", i + 1, name, axes[i].name);
    // An axis of one value is fixed by the problem, or to be forced to what it lists. The others
    // may be forced to values that a search would not try.
    const std::vector<int>& forced = axes[i].only_forced;
    if (axes[i].values.size() == 1 && axes[i].values.front() != value &&
        std::find(forced.begin(), forced.end(), value) == forced.end()) {
      return fmt::format("{}={} must be {} for this problem", name, value, axes[i].values.front());
    }
  }
  const std::string wrong = wrong_value(config, family.fields);
  return wrong.empty() ? family.reject(config, problem, device) : wrong;
}

std::vector<Candidate> candidates(const Family& family, const Problem& problem,
                                  const DeviceFacts& device, std::vector<CutCandidate>* cut,
                                  const Overrides& overrides) {
  validate(problem);
  std::vector<Candidate> kept;
  if (!rejection(family, problem, device.arch).empty()) return kept;
  for_each_point(family, problem, device, overrides, [&](const Config& config, std::string reason) {
    if (reason.empty()) {
      kept.push_back({&family, config, estimate(family, config, problem, device)});
    } else if (cut != nullptr) {
      cut->push_back({config, std::move(reason)});
    }
  });
  std::stable_sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) {
    return a.estimate_us < b.estimate_us;
  });
  return kept;
}

std::vector<Candidate> candidates(std::span<const Family* const> families, const Problem& problem,
                                  const DeviceFacts& device, const Overrides& overrides) {
  std::vector<Candidate> all;
  for (const Family* family : families) {
    if (!all.empty() && family->tier != all.back().family->tier) break;
    std::vector<Candidate> of_family = candidates(*family, problem, device, nullptr, overrides);
    std::move(of_family.begin(), of_family.end(), std::back_inserter(all));
  }
  return all;
}

Candidate untuned(std::span<const Family* const> families, const Problem& problem,
                  const DeviceFacts& device, const Overrides& overrides) {
  validate(problem);
  std::string reasons;
  for (const Family* family : families) {
    std::string reason = rejection(*family, problem, device.arch);
    if (reason.empty()) {
      Candidate best;
      for_each_point(*family, problem, device, overrides,
                     [&](const Config& config, const std::string& cut) {
                       if (!cut.empty()) {
                         reason = cut;
                         return;
                       }
                       const double time_us = estimate(*family, config, problem, device);
                       if (best.family == nullptr || time_us < best.estimate_us)
                         best = {family, config, time_us};
                     });
      if (best.family != nullptr) return best;
      reason = fmt::format("every config is cut, the last one because: {}", reason);
    }
    fmt::format_to(std::back_inserter(reasons), "\n  {}: {}", family->name, reason);
  }
  throw Error(ErrorCode::kUnsupported,
              fmt::format("no kernel family serves \"{}\" on {} (sm{}):{}", to_string(problem),
                          device.name, device.arch.name, reasons));
}

}  // namespace attnforge
