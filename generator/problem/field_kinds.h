// field_kinds.h - what words of a problem's text may be: integers, flags, choices, numbers and
// texts as members of Problem.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

#include "generator/problem/fields.h"

namespace attnforge::fields {

constexpr bool any_value(std::int64_t) { return true; }

// Const: whoever asks about many fields calls it once.
[[gnu::const]] inline const Problem& defaults() {
  static const Problem kDefaults;
  return kDefaults;
}

inline bool always(const Problem&) { return true; }
inline bool never(const Problem&) { return false; }

template <auto kMember>
bool differs(const Problem& p) {
  return p.*kMember != defaults().*kMember;
}
template <auto kFirst, auto kSecond>
bool either_differs(const Problem& p) {
  return differs<kFirst>(p) || differs<kSecond>(p);
}
template <auto kMember>
std::int64_t get(const Problem& p) {
  return static_cast<std::int64_t>(p.*kMember);
}
template <auto kMember>
void set(Problem& p, std::int64_t value) {
  p.*kMember = static_cast<std::remove_reference_t<decltype(p.*kMember)>>(value);
}

using IsSet = bool (*)(const Problem&);

template <auto kMember>
constexpr FieldValue integer(bool (*ok)(std::int64_t), IsSet is_set = differs<kMember>) {
  return {.kind = FieldKind::kInteger,
          .is_set = is_set,
          .get = get<kMember>,
          .set = set<kMember>,
          .ok = ok};
}
template <auto kMember>
constexpr FieldValue flag() {
  return {.kind = FieldKind::kFlag,
          .is_set = differs<kMember>,
          .get = get<kMember>,
          .set = set<kMember>,
          .ok = any_value};
}
template <auto kMember>
constexpr FieldValue choice(std::span<const std::string_view> choices,
                            IsSet is_set = differs<kMember>) {
  return {.kind = FieldKind::kChoice,
          .is_set = is_set,
          .get = get<kMember>,
          .set = set<kMember>,
          .choices = choices};
}
template <auto kMember>
constexpr FieldValue number(bool (*ok)(float)) {
  return {
      .kind = FieldKind::kNumber, .is_set = differs<kMember>, .number = kMember, .number_ok = ok};
}
template <auto kMember>
constexpr FieldValue text() {
  return {.kind = FieldKind::kText, .is_set = differs<kMember>, .text = kMember};
}
constexpr FieldValue pair(std::string_view first, std::string_view second, IsSet is_set = never) {
  return {.kind = FieldKind::kPair, .is_set = is_set, .first = first, .second = second};
}
/// A pair with the name of its first member.
template <auto kMember>
constexpr FieldValue integer_pair(bool (*ok)(std::int64_t), std::string_view first,
                                  std::string_view second) {
  FieldValue value = integer<kMember>(ok, always);
  value.first = first, value.second = second;
  return value;
}
inline constexpr FieldValue kDTypeOfAll = {.kind = FieldKind::kDType, .is_set = never};

}  // namespace attnforge::fields
