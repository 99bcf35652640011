// command_line.h - verbs and their options: CLI11, what its messages lack, and what the values of
// options may be, said in the terms of the option.
#pragma once

#include <CLI/CLI.hpp>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/plan.h"

namespace attnforge::cli {

/// The program or one of its verbs. Variables that options fill must live until parse() has
/// returned.
using Command = CLI::App;
using Option = CLI::Option;

/// The number that all of `text` is.
template <class Number>
std::optional<Number> number_in(std::string_view text) {
  Number number{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

/// Made of a function that returns "" when an option may have the value, else what is wrong with
/// it; for Option::transform it may rewrite the value. Messages begin with the option's name.
using ValueRule = CLI::Validator;
ValueRule one_of(const std::vector<std::string>& words);
/// A decimal number without a sign. The value is rewritten without leading
/// zeros, which would make it octal: for Option::transform.
ValueRule whole_number(std::uint64_t least, std::uint64_t most);
/// A number of seconds from 0 to 1e9: neither NaN nor infinity.
ValueRule seconds();
/// At least one name between commas.
ValueRule names();

inline constexpr std::uint64_t kMostSamples = 1'000'000;  // of measure()

/// An option with a value, which the help calls by the word after the name: "--q NPY".
template <class Value>
Option* add_value(Command& verb, const std::string& name, Value& value, const std::string& help) {
  const std::size_t blank = name.find(' ');
  return verb.add_option(name.substr(0, blank), value, help)->type_name(name.substr(blank + 1));
}

/// The same of a whole_number().
template <class Number>
Option* add_number(Command& verb, const std::string& name, Number& number, const std::string& help,
                   std::uint64_t least = 0,
                   std::uint64_t most = std::numeric_limits<Number>::max()) {
  return add_value(verb, name, number, help)->transform(whole_number(least, most));
}

/// --cache PATH, the same in every verb that uses the database.
void add_cache_option(Command& verb, std::string& path);

/// --policy, --time-limit, --family, --config.
void add_plan_options(Command& verb, PlanOptions& options);

/// Throws Error(kInvalidArgument).
Policy policy_named(const std::string& name);

/// The option takes one value each time that it is given, all of which are kept.
void may_repeat(Option* option);

/// Every option of this command and of its verbs that takes a value refuses "".
void refuse_empty_values(Command& command);

/// The verb that was given, nullptr if none; also known when parse() found a mistake after it.
Command* parsed_verb(Command& command);

enum class Parsed { kVerb, kShown, kWrong };  // kShown: --help or --version, which was printed
/// kWrong: `error` says why, as one line without the program's name.
Parsed parse(Command& program, int argc, const char* const* argv, std::string& error);

}  // namespace attnforge::cli
