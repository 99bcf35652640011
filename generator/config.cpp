#include "generator/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <vector>

#include "generator/text/throw_error.h"
#include "generator/text/words.h"

namespace attnforge {
namespace {

/// Names become C++ identifiers in the generated source, so nothing else may pass.
bool is_name(std::string_view text) {
  const auto letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  return !text.empty() && letter(text.front()) &&
         std::all_of(text.begin(), text.end(), [&](char c) { return letter(c) || digit(c); });
}

std::pair<std::string, int> parse_field(std::string_view word) {
  const std::size_t equals = word.find('=');
  if (equals == word.npos || !is_name(word.substr(0, equals))) {
    throw_error(ErrorCode::kInvalidArgument,
                "config word \"{}\" must be name=number, as in block_m=128", word);
  }
  const std::string_view number = word.substr(equals + 1);
  int value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (error != std::errc() || end != number.data() + number.size()) {
    throw_error(ErrorCode::kInvalidArgument,
                "config word \"{}\": \"{}\" must be a whole number of 32 bits", word, number);
  }
  return {std::string(word.substr(0, equals)), value};
}

}  // namespace

std::string to_string(const Allowed& allowed) {
  constexpr std::size_t kMostListed = 8;
  const auto& [least, most, step, doubles] = allowed;
  std::vector<int> values;
  for (std::int64_t value = least; value <= most && values.size() <= kMostListed;
       value = doubles ? 2 * value : value + step) {
    values.push_back(static_cast<int>(value));
  }
  if (values.size() <= kMostListed) {
    const int last = values.back();
    values.pop_back();
    return values.empty() ? fmt::format("{}", last)
                          : fmt::format("{} or {}", fmt::join(values, ", "), last);
  }
  if (doubles) return fmt::format("{} times a power of two, at most {}", least, most);
  if (step == 1) return fmt::format("from {} to {}", least, most);
  return fmt::format("a multiple of {} from {} to {}", step, least, most);
}

std::string wrong_value(const FieldRule& rule, int value) {
  return fmt::format("{}={} must be {}", rule.name, value, to_string(rule.allowed));
}

std::string wrong_value(const Config& config, std::span<const FieldRule> rules) {
  for (std::size_t i = 0; i < std::min(rules.size(), config.fields.size()); ++i) {
    const int value = config.fields[i].second;
    if (!rules[i].allowed.has(value)) return wrong_value(rules[i], value);
  }
  return "";
}

int Config::get(std::string_view name) const {
  for (const auto& [field, value] : fields) {
    if (field == name) return value;
  }
  throw_error(ErrorCode::kInvalidArgument, "config \"{}\" has no field {}", to_string(*this), name);
}

std::string to_string(const Config& config) {
  std::string text = config.family;
  for (const auto& [name, value] : config.fields) text += fmt::format(" {}={}", name, value);
  return text;
}

Config parse_config(std::string_view text) {
  const std::string_view family = next_word(text);
  if (family.empty())
    throw_error(
        ErrorCode::kInvalidArgument,
        "the config is empty; it begins with its family, as in \"fwd_naive num_threads=128\"");
  if (!is_name(family))
    throw_error(ErrorCode::kInvalidArgument, "config word \"{}\" must be the name of a family",
                family);
  Config config{std::string(family), {}};
  for (std::string_view word = next_word(text); !word.empty(); word = next_word(text)) {
    auto field = parse_field(word);
    const bool again = std::any_of(
        config.fields.begin(), config.fields.end(),
        [&](const auto& earlier) { return earlier.first == field.first; });
    if (again)
      throw_error(ErrorCode::kInvalidArgument, "config word \"{}\" gives {} again; give it once",
                  word, field.first);
    config.fields.push_back(std::move(field));
  }
  return config;
}

void throw_unknown_field(const Config& config, std::size_t expected_count) {
  throw_error(ErrorCode::kInvalidArgument, "config \"{}\" has {} fields where {} has {}",
              to_string(config), config.fields.size(), config.family, expected_count);
}

void throw_wrong_value(const Config& config, const FieldRule& rule, int value) {
  throw_error(ErrorCode::kInvalidArgument, "config \"{}\": {}", to_string(config),
              wrong_value(rule, value));
}

}  // namespace attnforge
