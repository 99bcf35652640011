// argument_fields.h - what must hold of the fields of every kernel's argument.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "generator/launch.h"
#include "templates/base_params.h"

namespace attnforge::test {

inline std::size_t size_of(const ArgumentField& field) {
  struct Size {
    std::size_t operator()(const FwdArgument&) const { return sizeof(FwdParams); }
    std::size_t operator()(const OwnArgument& own) const { return own.bytes; }
    std::size_t operator()(const TensorMapSpec&) const { return sizeof(TensorMap); }
    std::size_t operator()(const AddressArgument&) const { return sizeof(void*); }
    std::size_t operator()(const ScratchArgument&) const { return sizeof(void*); }
    std::size_t operator()(const CountersArgument&) const { return sizeof(void*); }
  };
  return std::visit(Size{}, field.value);
}

inline std::size_t alignment_of(const ArgumentField& field) {
  if (std::holds_alternative<TensorMapSpec>(field.value)) return alignof(TensorMap);
  return size_of(field) == sizeof(void*) ? alignof(void*) : alignof(FwdParams);
}

/// How many bytes at the beginning of a field's place may hold numbers of the launch.
inline std::size_t planned_bytes(const ArgumentField& field) {
  if (std::holds_alternative<CountersArgument>(field.value)) return 0;
  return std::holds_alternative<TensorMapSpec>(field.value) ? sizeof(TensorMapSizes)
                                                            : size_of(field);
}

/// "" if the fields that a run fills in lie inside of the argument, aligned and apart, and what is
/// in their places before is zeros, but for sizes that the run reads there; else what is wrong.
inline std::string argument_fault(const LaunchStep& step) {
  if (step.params.empty() || step.params.size() > kMaxParamsBytes) return "the argument's size";
  std::vector<std::pair<std::size_t, std::size_t>> places;  // begin, end
  for (const ArgumentField& field : step.args) {
    const std::size_t end = field.offset + size_of(field);
    if (field.offset % alignment_of(field) != 0) return "a field's alignment";
    if (end > step.params.size()) return "a field's end";
    places.emplace_back(field.offset, end);
    const bool zeros = std::all_of(
        step.params.begin() + static_cast<std::ptrdiff_t>(field.offset + planned_bytes(field)),
        step.params.begin() + static_cast<std::ptrdiff_t>(end),
        [](std::byte byte) { return byte == std::byte{0}; });
    if (!zeros) return "what a run writes over";
  }
  std::sort(places.begin(), places.end());
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i].first < places[i - 1].second) return "two fields in one place";
  }
  return "";
}

/// What the launch put to `offset` of the argument.
template <class Planned>
Planned planned_at(const LaunchStep& step, std::size_t offset) {
  Planned planned;
  std::memcpy(&planned, step.params.data() + offset, sizeof(planned));
  return planned;
}

/// The values of one kind, in order.
template <class Kind>
std::vector<std::pair<std::size_t, Kind>> parts_of(const LaunchStep& step) {
  std::vector<std::pair<std::size_t, Kind>> found;
  for (const ArgumentField& field : step.args) {
    if (const Kind* const value = std::get_if<Kind>(&field.value))
      found.emplace_back(field.offset, *value);
  }
  return found;
}

/// Offsets of the fields that are `own`: of one kind with others, known by its function.
inline std::vector<std::size_t> places_of(const OwnArgument& own, const LaunchStep& step) {
  std::vector<std::size_t> found;
  for (const auto& [offset, value] : parts_of<OwnArgument>(step))
    if (value == own) found.push_back(offset);
  return found;
}

}  // namespace attnforge::test
