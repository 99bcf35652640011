// fixed_fields.h - the fields of a typed config that the problem decides: axes with one value,
// which a forced config must not contradict.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "generator/config.h"
#include "generator/family.h"

namespace attnforge {

template <class Typed>
std::vector<Axis> fixed_axes(const Typed& fixed, std::span<const Field<Typed>> fields) {
  std::vector<Axis> axes;
  for (const Field<Typed>& field : fields) axes.push_back({field.name, {fixed.*field.member}});
  return axes;
}

/// "" or which field of `config` is not what the problem says.
template <class Typed>
std::string contradiction(const Typed& config, const Typed& fixed,
                          std::span<const Field<Typed>> fields) {
  for (const Field<Typed>& field : fields) {
    if (config.*field.member != fixed.*field.member) {
      return fmt::format("{}={} is not the problem's {}", field.name, config.*field.member,
                         fixed.*field.member);
    }
  }
  return "";
}

}  // namespace attnforge
