// typed_family.h - a Family made of functions that take a family's own typed config: the one place
// where a Config, which is text and words, becomes one.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <functional>
#include <span>
#include <type_traits>
#include <utility>

#include "attnforge/error.h"
#include "generator/config.h"
#include "generator/family.h"
#include "generator/shape.h"

namespace attnforge {

/// Whether the table lists every member of Typed that Shape does not have, in their order: the
/// generated source has an initialiser that counts on it.
template <class Typed, std::size_t N>
constexpr bool lists_every_member(const Field<Typed> (&fields)[N]) {
  constexpr std::size_t kOfShape = sizeof(Shape) / sizeof(int);
  if constexpr (sizeof(Typed) != (kOfShape + N) * sizeof(int)) return false;
  Typed numbered{};
  for (std::size_t i = 0; i < N; ++i) numbered.*fields[i].member = static_cast<int>(i + 1);
  const auto ints = std::bit_cast<std::array<int, sizeof(Typed) / sizeof(int)>>(numbered);
  for (std::size_t i = 0; i < N; ++i) {
    if (ints[kOfShape + i] != static_cast<int>(i + 1)) return false;
  }
  return true;
}

/// The typed config of `config` for `problem`. Throws as typed() does.
template <const auto& kFields>
TypedOf<kFields> typed(const Config& config, const Problem& problem) {
  TypedOf<kFields> result = typed<kFields>(config);
  static_cast<Shape&>(result) = shape_of(problem);
  return result;
}

/// "" or which value is not allowed: of a config whose values are forced.
template <class Typed, std::size_t N>
Reason wrong_value(std::span<const int> values, const Field<Typed> (&fields)[N]) {
  for (std::size_t i = 0; i < N; ++i) {
    const auto& [name, member, allowed] = fields[i];
    if (!allowed.has(values[i])) return wrong_value(FieldRule{name, allowed}, values[i]);
  }
  return "";
}

/// Calls visit(typed config, values) for each point of the product of `axes`, the last axis
/// fastest. The config is one object that is changed from point to point.
template <class Typed, std::size_t N, class Visit>
void for_each_typed(std::span<const Axis> axes, const Problem& problem,
                    const Field<Typed> (&fields)[N], Visit&& visit) {
  ATTNFORGE_ASSERT(axes.size() == N, "a family has an axis for each of its fields");
  Typed c{};
  static_cast<Shape&>(c) = shape_of(problem);
  std::array<std::size_t, N> at{};
  std::array<int, N> values{};
  const auto set = [&](std::size_t i) { values[i] = c.*fields[i].member = axes[i].values[at[i]]; };
  for (std::size_t i = 0; i < N; ++i) {
    ATTNFORGE_ASSERT(axes[i].name == fields[i].name, "axes are in the order of the fields");
    set(i);
  }
  for (;;) {
    visit(std::as_const(c), std::span<const int>(values));
    std::size_t i = N;
    do {  // count up, as with the digits of a number
      if (i == 0) return;
      --i;
      at[i] = at[i] + 1 == axes[i].values.size() ? 0 : at[i] + 1;
      set(i);
    } while (at[i] == 0);
  }
}

/// Whether no point of a search space has a value that is not allowed: then none need be looked at
/// for that. What is forced may be one.
template <class Typed, std::size_t N>
bool all_allowed(std::span<const Axis> axes, const Field<Typed> (&fields)[N]) {
  for (std::size_t i = 0; i < std::min(axes.size(), N); ++i) {
    for (const int value : axes[i].values) {
      if (!fields[i].allowed.has(value)) return false;
    }
  }
  return true;
}

/// The tile of configs that say it, by members or by functions.
template <class Typed>
TileShape tile_shape_of(const Typed& c) {
  TileShape tile;
  if constexpr (requires { c.block_m(); })
    tile.block_m = c.block_m();
  else if constexpr (requires { c.block_m; })
    tile.block_m = c.block_m;
  if constexpr (requires { c.block_n(); })
    tile.block_n = c.block_n();
  else if constexpr (requires { c.block_n; })
    tile.block_n = c.block_n;
  return tile;
}

template <const auto& kFields>
inline constexpr auto kRulesOf = rules_of(kFields);

/// needless() of families that search all that is legal.
template <class Typed>
Reason never_needless(const Typed&, const Problem&, const DeviceFacts&) {
  return "";
}

/// `family` with the members that take a config: functions like those of Family, but for
/// `const Typed&` where Family has `const Config&`. kFields is the table of Typed's fields; only
/// these are set in what kDescribe gets. kNeedless and kEstimate see typical_problem().
template <const auto& kFields, auto kIllegal, auto kNeedless, auto kEstimate, auto kRender,
          auto kLaunch, auto kDescribe = nullptr, auto kSpread = nullptr>
constexpr Family typed_family(Family family) {
  static_assert(lists_every_member(kFields));
  family.fields = kRulesOf<kFields>;
  family.illegal = [](const Config& config, const Problem& problem, const DeviceFacts& device) {
    return kIllegal(typed<kFields>(config, problem), problem, device).text();
  };
  family.needless = [](const Config& config, const Problem& problem, const DeviceFacts& device) {
    return kNeedless(typed<kFields>(config, problem), typical_problem(problem), device).text();
  };
  family.estimate_us = [](const Config& config, const Problem& problem, const DeviceFacts& device) {
    return kEstimate(typed<kFields>(config, problem), typical_problem(problem), device);
  };
  family.for_each_point = [](std::span<const Axis> axes, const Problem& problem,
                             const DeviceFacts& device,
                             const std::function<void(const Point&)>& visit) {
    const bool allowed = all_allowed(axes, kFields);
    const Problem typical = typical_problem(problem);
    for_each_typed(axes, problem, kFields, [&](const auto& c, std::span<const int> values) {
      // Made in place: moving a Reason would take longer than most points do.
      Point point{.values = values,
                  .cut = allowed || wrong_value(values, kFields).empty()
                             ? kIllegal(c, problem, device)
                             : wrong_value(values, kFields)};
      if (point.cut.empty()) point.cut = kNeedless(c, typical, device);
      if (point.cut.empty()) {
        point.estimate_us = kEstimate(c, typical, device);
        if constexpr (!std::is_null_pointer_v<decltype(kSpread)>)
          point.spread = kSpread(c, typical, device);
      }
      visit(point);
    });
  };
  if constexpr (!std::is_null_pointer_v<decltype(kSpread)>)
    family.spread = [](const Config& config, const Problem& problem, const DeviceFacts& device) {
      return kSpread(typed<kFields>(config, problem), typical_problem(problem), device);
    };
  family.tile_shape = [](const Config& config, const Problem& problem) {
    return tile_shape_of(typed<kFields>(config, problem));
  };
  if constexpr (!std::is_null_pointer_v<decltype(kDescribe)>)
    family.describe = [](const Config& config) { return kDescribe(typed<kFields>(config)); };
  family.render = [](const Config& config, const Problem& problem) {
    return kRender(typed<kFields>(config, problem), problem);
  };
  family.launch = [](const Config& config, const Problem& problem, const DeviceFacts& device) {
    return kLaunch(typed<kFields>(config, problem), problem, device);
  };
  return family;
}

}  // namespace attnforge
