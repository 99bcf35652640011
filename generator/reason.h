// reason.h - why a config is not a candidate, in words that are made only when they are read:
// a search asks about a hundred thousand points and shows none.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace attnforge {

class Reason {
 public:
  /// None. A literal, or anything that lives as long as the program.
  Reason(const char* text = "") : format_(text) {}
  Reason(std::string text) : format_(""), made_(std::move(text)) {}
  /// `format` with a {} for each number.
  template <std::integral... Numbers>
  requires(sizeof...(Numbers) >= 1 && sizeof...(Numbers) <= 4)
      Reason(const char* format, Numbers... numbers)
      : format_(format), numbers_{static_cast<std::int64_t>(numbers)...} {}

  bool empty() const { return *format_ == '\0' && made_.empty(); }
  /// Whether there is one.
  explicit operator bool() const { return !empty(); }
  std::string text() const;
  /// The words; of a format without its numbers, so that no text is made. Borrowed.
  std::string_view words() const { return made_.empty() ? std::string_view(format_) : made_; }

 private:
  const char* format_;
  std::array<std::int64_t, 4> numbers_{};
  std::string made_;
};

}  // namespace attnforge
