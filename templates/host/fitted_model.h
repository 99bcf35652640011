// fitted_model.h - a family's model as bench/fit sees it: constants by name, and what they make of
// a config.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <span>
#include <string_view>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/error.h"
#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/problem/bucket.h"
#include "generator/typed_family.h"

namespace attnforge {

struct FittedModel {
  std::string_view family;
  std::span<const std::string_view> names;  // of the constants, as in estimate_constants.inc
  /// Those of today for an arch, in that order.
  std::vector<double> (*constants)(const Arch& arch);
  /// What Family::estimate_us would say with other constants.
  double (*estimate_us)(const Config& config, const Problem& problem, const DeviceFacts& device,
                        std::span<const double> constants);
};

extern const FittedModel fitted_fwd_mma_sm80, fitted_bwd_mma_sm80;

/// A family's constants are a struct of doubles alone.
template <class Constants>
std::vector<double> numbers_of(const Constants& constants) {
  const auto numbers = std::bit_cast<std::array<double, sizeof(Constants) / sizeof(double)>>(
      constants);
  return {numbers.begin(), numbers.end()};
}
template <class Constants>
Constants constants_of_numbers(std::span<const double> numbers) {
  std::array<double, sizeof(Constants) / sizeof(double)> all{};
  for (std::size_t i = 0; i < all.size(); ++i) all[i] = numbers[i];
  return std::bit_cast<Constants>(all);
}

/// Of a family of typed configs. kConstantsOf(arch): its constants there. kModelUs(config, problem,
/// device, constants): Family::estimate_us of the typical problem.
template <const auto& kFields, auto kConstantsOf, auto kModelUs>
constexpr FittedModel fitted_model(std::string_view family,
                                   std::span<const std::string_view> names) {
  return {.family = family,
          .names = names,
          .constants = [](const Arch& arch) { return numbers_of(kConstantsOf(arch)); },
          .estimate_us =
              [](const Config& config, const Problem& problem, const DeviceFacts& device,
                 std::span<const double> constants) {
                using Constants = decltype(kConstantsOf(device.arch));
                return kModelUs(typed<kFields>(config, problem), typical_problem(problem), device,
                                constants_of_numbers<Constants>(constants));
              }};
}

/// A line of estimate_constants.inc: what was measured on GPUs of an arch.
template <class Constants>
struct ConstantsOfArch {
  std::string_view arch;
  Constants constants;
};

/// Null for an arch without a line.
template <class Constants, std::size_t N>
const Constants* constants_of_arch(const ConstantsOfArch<Constants> (&lines)[N],
                                   std::string_view arch) {
  for (const ConstantsOfArch<Constants>& line : lines)
    if (line.arch == arch) return &line.constants;
  return nullptr;
}
/// Those of a Hopper, which every family with such lines was measured on.
template <class Constants, std::size_t N>
const Constants& constants_of_hopper(const ConstantsOfArch<Constants> (&lines)[N]) {
  const Constants* const found = constants_of_arch(lines, "90a");
  ATTNFORGE_ASSERT(found != nullptr, "estimate_constants.inc has a line for 90a");
  return *found;
}

}  // namespace attnforge
