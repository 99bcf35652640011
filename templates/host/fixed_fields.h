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
#include "templates/base.cuh"
#include "templates/host/fwd_params.h"

namespace attnforge {

// Values of fields that repeat the problem: those that problems may have.
inline constexpr Allowed kFlag = from_to(0, 1);
inline constexpr Allowed kDtypes = from_to(kFp32, kBf16);
inline constexpr Allowed kHeadDims = from_to(8, 512, 8);
inline constexpr Allowed kAlignments = doubled(2, 16);
inline constexpr Allowed kRopes = from_to(kNoRope, kRopeHalf);
inline constexpr Allowed kRopeDims = from_to(0, 512, 8);

// And of fields that mean the same to several families.
inline constexpr Allowed kPackedHeads = from_to(1, 512);
inline constexpr Allowed kHeadGroupsMb = from_to(0, 1 << 30);

/// "" or why a query tile cannot have the rows of `pack_gqa` query heads: kernels take those of one
/// K/V head, all or one.
inline std::string wrong_pack(const Problem& problem, int pack_gqa) {
  const int group = gqa_group(problem);
  if (pack_gqa == 1 || pack_gqa == group) return "";
  return fmt::format("pack_gqa={} must be 1 or the {} query heads of a K/V head", pack_gqa, group);
}

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
