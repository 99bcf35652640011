#include "cli/options/option_values.h"

#include <fmt/format.h>

#include <charconv>
#include <string>

#include "cli/options/problems.h"

namespace attnforge::cli {
namespace {

constexpr double kMostSeconds = 1e9;

/// `text` for a message, which a value of a megabyte must not fill.
std::string shortened(const std::string& text) {
  constexpr std::size_t kShown = 40;
  if (text.size() <= kShown) return "\"" + text + "\"";
  return fmt::format("\"{}...\" ({} characters)", text.substr(0, kShown), text.size());
}

template <class Number>
bool read(const std::string& text, Number& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

ValueRule whole_number(std::uint64_t least, std::uint64_t most) {
  const auto check = [least, most](std::string& text) {
    std::uint64_t number = 0;
    if (!read(text, number) || number < least || number > most)
      return fmt::format("{} must be a whole number from {} to {}", shortened(text), least, most);
    text = std::to_string(number);
    return std::string();
  };
  return ValueRule(check, "");
}

ValueRule seconds() {
  const auto check = [](std::string& text) {
    double number = 0;
    if (!read(text, number) || !(number >= 0 && number <= kMostSeconds))
      return fmt::format("{} must be a number of seconds from 0 to {:.0f}", shortened(text),
                         kMostSeconds);
    return std::string();
  };
  return ValueRule(check, "");
}

ValueRule names() {
  const auto check = [](std::string& text) {
    return names_of(text).empty() ? fmt::format("{} names nothing", shortened(text))
                                  : std::string();
  };
  return ValueRule(check, "");
}

}  // namespace attnforge::cli
