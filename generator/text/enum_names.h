// enum_names.h - enumerators by tables of their names, which are in the enumerators' order.
#pragma once

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string_view>

namespace attnforge {

using EnumNames = std::span<const std::string_view>;

/// "unknown": the value is none of the enum's.
template <class Enum>
std::string_view name_in(EnumNames names, Enum value) {
  const auto i = static_cast<std::size_t>(value);
  return i < names.size() ? names[i] : "unknown";
}

/// Nothing: there is no such name.
template <class Enum>
std::optional<Enum> named_in(EnumNames names, std::string_view name) {
  const auto found = std::ranges::find(names, name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

}  // namespace attnforge
