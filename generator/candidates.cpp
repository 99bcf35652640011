#include "generator/candidates.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

/// The axes of a search, with what is forced on them; `reason` is why the family cannot be forced.
std::vector<Axis> axes_of(const Family& family, const Problem& problem, const DeviceFacts& device,
                          const Overrides& overrides, std::string& reason) {
  std::vector<Axis> axes = family.axes(problem, device);
  reason = force_axes(axes, overrides);
  for (const Axis& axis : axes)
    ATTNFORGE_ASSERT(!axis.values.empty(), "every axis has at least one value");
  return axes;
}

Config config_of(const Family& family, const std::vector<Axis>& axes, std::span<const int> values) {
  Config config{std::string(family.name), {}};
  config.fields.reserve(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) config.fields.emplace_back(axes[i].name, values[i]);
  return config;
}

/// For people: "block mask, caches of int8, int4, e4m3, e5m2 or blocks".
std::string features_in_words(Features features) {
  std::string text;
  for (const std::string_view name : feature_names(features)) {
    std::string words(name);
    if (name == "low_bits") words = "caches of int8, int4, e4m3, e5m2 or blocks";
    if (name == "whole_dargs") words = "dargs that are written whole";
    std::ranges::replace(words, '_', ' ');
    text += (text.empty() ? "" : ", ") + words;
  }
  return text;
}

/// "smem 180224 > 101376" and "smem 196608 > 101376" are one reason: "smem # > #".
std::string without_numbers(std::string_view reason) {
  std::string text;
  for (const char c : reason) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) text += c;
    if (digit && (text.empty() || text.back() != '#')) text += '#';
  }
  return text;
}

void require_finite(double time_us) {
  ATTNFORGE_ASSERT(std::isfinite(time_us),
                   "an estimate is a finite number");  // else the order would not be one
}

/// What a family of a tier after the products is.
std::string_view role_of(Tier tier) {
  return tier == Tier::kLadder ? "a teaching kernel" : "the kernel that checks all others";
}

/// The best estimate of `family`. None, and why in `reason`, if it has no candidate.
Candidate best_of(const Family& family, const Problem& problem, const DeviceFacts& device,
                  const Overrides& overrides, std::string& reason) {
  Candidate best;
  const std::vector<Axis> axes = axes_of(family, problem, device, overrides, reason);
  if (reason.empty()) {
    Reason last;
    std::vector<int> values;
    family.for_each_point(axes, problem, device, [&](const Point& point) {
      if (!point.cut.empty()) {
        if (best.family == nullptr) last = point.cut;
        return;
      }
      require_finite(point.estimate_us);
      if (best.family != nullptr && point.estimate_us >= best.estimate_us) return;
      best.family = &family;
      best.estimate_us = point.estimate_us;
      values.assign(point.values.begin(), point.values.end());
    });
    if (best.family != nullptr) {
      best.config = config_of(family, axes, values);
      return best;
    }
    reason = last.text();
  }
  reason = fmt::format("every config is cut, the last one because: {}", reason);
  return best;
}

}  // namespace

CutKind& Cuts::kind_of(std::string_view words) {
  const auto known = kinds.find(words);
  if (known != kinds.end()) return known->second;
  return kinds[without_numbers(words)];
}

std::string rejection(const Family& family, const Problem& problem, const Arch& arch) {
  if (family.op != problem.op)
    return fmt::format("computes {}, not {}", to_string(family.op), to_string(problem.op));
  const Features missing = required_features(problem) & ~family.features;
  if (missing != 0) return fmt::format("does not have {}", features_in_words(missing));
  return family.supports(problem, arch);
}

std::string illegal(const Family& family, const Config& config, const Problem& problem,
                    const DeviceFacts& device) {
  if (family.fields.size() != config.fields.size()) {
    return fmt::format("it has {} fields, {} has {}", config.fields.size(), family.name,
                       family.fields.size());
  }
  for (std::size_t i = 0; i < family.fields.size(); ++i) {
    if (const std::string& name = config.fields[i].first; name != family.fields[i].name)
      return fmt::format("field {} is \"{}\", not \"{}\"", i + 1, name, family.fields[i].name);
  }
  const std::string wrong = wrong_value(config, family.fields);
  return wrong.empty() ? family.illegal(config, problem, device) : wrong;
}

std::vector<Candidate> candidates(const Family& family, const Problem& problem,
                                  const DeviceFacts& device, Cuts* cuts,
                                  const Overrides& overrides) {
  validate(problem);
  std::vector<Candidate> kept;
  if (!rejection(family, problem, device.arch).empty()) return kept;
  std::string unforced;
  const std::vector<Axis> axes = axes_of(family, problem, device, overrides, unforced);
  if (!unforced.empty()) {
    if (cuts != nullptr) cuts->add(unforced, [&] { return Config{std::string(family.name), {}}; });
    return kept;
  }
  family.for_each_point(axes, problem, device, [&](const Point& point) {
    if (point.cut.empty()) {
      require_finite(point.estimate_us);
      kept.push_back(
          {&family, config_of(family, axes, point.values), point.estimate_us, point.spread});
    } else if (cuts != nullptr) {
      cuts->add(point.cut, [&] { return config_of(family, axes, point.values); });
    }
  });
  std::stable_sort(kept.begin(), kept.end(), [](const Candidate& a, const Candidate& b) {
    return a.estimate_us < b.estimate_us;
  });
  return kept;
}

std::vector<Candidate> candidates(std::span<const Family* const> families, const Problem& problem,
                                  const DeviceFacts& device, const Overrides& overrides,
                                  LeftOut* left_out) {
  std::vector<Candidate> all;
  for (const Family* family : families) {
    if (family->op != problem.op) continue;
    const bool of_later_tier = !all.empty() && family->tier != all.back().family->tier;
    if (left_out != nullptr) {
      std::string reason = rejection(*family, problem, device.arch);
      if (reason.empty() && of_later_tier)
        reason = fmt::format("is {} (tier {}): name it to use it", role_of(family->tier),
                             to_string(family->tier));
      if (!reason.empty()) left_out->families.emplace_back(family, std::move(reason));
    }
    if (of_later_tier) continue;
    std::vector<Candidate> of_family = candidates(
        *family, problem, device, left_out == nullptr ? nullptr : &left_out->cuts, overrides);
    std::move(of_family.begin(), of_family.end(), std::back_inserter(all));
  }
  return all;
}

Candidate untuned(std::span<const Family* const> families, const Problem& problem,
                  const DeviceFacts& device, const Overrides& overrides) {
  constexpr double kClearly = 0.8;  // models of two families are not one
  validate(problem);
  std::string reasons;
  Candidate best;
  for (const Family* family : families) {
    if (family->op != problem.op && families.size() > 1) continue;
    if (best.family != nullptr && family->tier != best.family->tier) break;
    std::string reason = rejection(*family, problem, device.arch);
    if (reason.empty()) {
      Candidate own = best_of(*family, problem, device, overrides, reason);
      if (own.family != nullptr &&
          (best.family == nullptr || own.estimate_us < kClearly * best.estimate_us))
        best = std::move(own);
    }
    reasons += fmt::format("\n  {}: {}", family->name, reason);
  }
  if (best.family != nullptr) return best;
  throw_error(ErrorCode::kUnsupported, "no kernel family serves \"{}\" on {} (sm_{}):{}",
              to_string(problem), device.name, device.arch.name, reasons);
}

}  // namespace attnforge
