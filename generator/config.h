// config.h - a configuration: a family's name and named integers. The currency of search, cache,
// logs and the CLI.
#pragma once

#include <cstddef>
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

/// "fwd_mma_sm80 head_dim=128 block_m=128 ..."; parse_config(to_string(c)) == c.
std::string to_string(const Config& config);
/// Throws Error(kInvalidArgument) naming the word. Knows nothing of families: a family checks its
/// own fields.
Config parse_config(std::string_view text);

/// One int member of a family's typed config, with its name in texts.
template <class Typed>
struct Field {
  std::string_view name;
  int Typed::*member;
};

template <class Typed, std::size_t N>
Config untyped(std::string_view family, const Typed& typed, const Field<Typed> (&fields)[N]) {
  Config config{std::string(family), {}};
  config.fields.reserve(N);
  for (const auto& field : fields) config.fields.emplace_back(field.name, typed.*field.member);
  return config;
}

/// Throws Error(kInvalidArgument) for a missing field; extra ones are an error too.
template <class Typed, std::size_t N>
Typed typed(const Config& config, const Field<Typed> (&fields)[N]);

void throw_unknown_field(const Config& config, std::size_t expected_count);

template <class Typed, std::size_t N>
Typed typed(const Config& config, const Field<Typed> (&fields)[N]) {
  Typed result{};
  if (config.fields.size() != N) throw_unknown_field(config, N);
  for (std::size_t i = 0; i < N; ++i) {
    // As a rule in the same order: a search converts thousands.
    const auto& [name, value] = config.fields[i];
    result.*fields[i].member = name == fields[i].name ? value : config.get(fields[i].name);
  }
  return result;
}

/// "{.head_dim = 128, .block_m = 64}": the config as a C++ initialiser for the generated source.
std::string initializer(const Config& config);

}  // namespace attnforge
