// fixed_fields.h - the fields of a typed config that the problem decides: axes with one value,
// which a forced config must not contradict.
#pragma once

#include <fmt/format.h>

#include <span>
#include <string>
#include <vector>

#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/family.h"

namespace attnforge {

/// The fields that the forward families share, from a problem; the rest is zero.
template <class Typed>
Typed fixed_by_problem(const Problem& problem) {
  const Window window = effective_window(problem);
  Typed c{};
  if constexpr (requires { c.dtype; }) c.dtype = static_cast<int>(problem.dtype_q);
  c.head_dim = problem.head_dim;
  c.head_dim_v = problem.head_dim_v;
  c.right_bound = window.right >= 0;
  c.left_bound = window.left >= 0;
  c.softcap = problem.softcap > 0;
  c.lse = problem.lse;
  if constexpr (requires { c.alignment; }) c.alignment = problem.alignment_bytes;
  if constexpr (requires { c.rope; }) {  // else the family does not list kFeatureRope
    c.rope = static_cast<int>(problem.rope);
    c.rope_dim = effective_rope_dim(problem);
  }
  return c;
}

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
