// config.h - a configuration: a family's name and what is searched of it, as named integers. The
// currency of search, cache, logs and the CLI.
#pragma once

#include <array>
#include <cstddef>
#include <iterator>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace attnforge {

struct Config {
  std::string family;
  std::vector<std::pair<std::string, int>> fields;  // in the family's order

  /// Throws Error(kInvalidArgument) when there is no such field.
  int get(std::string_view name) const;
  friend bool operator==(const Config&, const Config&) = default;
};

/// "fwd_mma_sm80 block_m=128 num_warps=4 ..."; parse_config(to_string(c)) == c.
std::string to_string(const Config& config);
/// Throws Error(kInvalidArgument) naming the word. Knows nothing of families: a family checks its
/// own fields.
Config parse_config(std::string_view text);

/// Which values a field may have, whatever the problem and the GPU: from `least` to `most`, `step`
/// apart, or each twice the one before. They are what a family's arithmetic and kernels are good
/// for; which of them are legal together, its illegal() decides.
struct Allowed {
  int least = std::numeric_limits<int>::min();
  int most = std::numeric_limits<int>::max();
  int step = 1;
  bool doubles = false;

  constexpr bool has(int value) const {
    if (value < least || value > most) return false;
    if (!doubles) return step == 1 || (value - least) % step == 0;
    while (value > least && value % 2 == 0) value /= 2;
    return value == least;
  }
};
constexpr Allowed from_to(int least, int most, int step = 1) { return {least, most, step}; }
constexpr Allowed doubled(int least, int most) { return {least, most, 1, true}; }

/// "1 or 2", "a multiple of 16 from 16 to 256": what stands after "must be".
std::string to_string(const Allowed& allowed);

struct FieldRule {
  std::string_view name;
  Allowed allowed;
};

/// "" if every field of `config` has a value that is allowed, else "num_warps=0 must be 2, 4 or 8".
/// The fields are those of the rules, in the same order.
std::string wrong_value(const Config& config, std::span<const FieldRule> rules);

/// "num_warps=0 must be 2, 4 or 8".
std::string wrong_value(const FieldRule& rule, int value);

/// One int member of a family's typed config, with its name in texts and its values.
template <class Typed>
struct Field {
  std::string_view name;
  int Typed::*member;
  Allowed allowed{};
};

/// A table of fields without their type, for Family::fields.
template <class Typed, std::size_t N>
constexpr std::array<FieldRule, N> rules_of(const Field<Typed> (&fields)[N]) {
  std::array<FieldRule, N> rules;
  for (std::size_t i = 0; i < N; ++i) rules[i] = {fields[i].name, fields[i].allowed};
  return rules;
}

template <class Typed, std::size_t N>
Config untyped(std::string_view family, const Typed& typed, const Field<Typed> (&fields)[N]) {
  Config config{std::string(family), {}};
  config.fields.reserve(N);
  for (const auto& field : fields) config.fields.emplace_back(field.name, typed.*field.member);
  return config;
}

void throw_unknown_field(const Config& config, std::size_t expected_count);
void throw_wrong_value(const Config& config, const FieldRule& rule, int value);

/// Sets the member of field kIndex in its family's order.
template <const auto& kFields, std::size_t kIndex, class Typed>
void set_field(const Config& config, Typed& result) {
  constexpr Field<Typed> kField = kFields[kIndex];
  // Fields are in the same order as a rule, so this place is tried first: a search converts
  // thousands.
  const auto& [name, given] = config.fields[kIndex];
  const int value = name == kField.name ? given : config.get(kField.name);
  if (!kField.allowed.has(value)) throw_wrong_value(config, {kField.name, kField.allowed}, value);
  result.*kField.member = value;
}

template <class Typed, std::size_t N>
Typed type_of(const Field<Typed> (&)[N]);  // for TypedOf; never called
template <const auto& kFields>
using TypedOf = decltype(type_of(kFields));

/// The only way from a Config to a family's arithmetic. Throws Error(kInvalidArgument) for a field
/// that is missing or too many, and for a value that is not allowed. Unrolled, so that names and
/// limits are constants: each plan for a new length converts its config.
template <const auto& kFields>
TypedOf<kFields> typed(const Config& config) {
  TypedOf<kFields> result{};
  if (config.fields.size() != std::size(kFields)) throw_unknown_field(config, std::size(kFields));
  [&]<std::size_t... kIndexes>(std::index_sequence<kIndexes...>) {
    (set_field<kFields, kIndexes>(config, result), ...);
  }
  (std::make_index_sequence<std::size(kFields)>());
  return result;
}

}  // namespace attnforge
