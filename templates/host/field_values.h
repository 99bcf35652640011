// field_values.h - values of fields that mean the same to several families.
#pragma once

#include "attnforge/problem.h"
#include "generator/config.h"
#include "generator/reason.h"
#include "templates/host/fwd_params.h"

namespace attnforge {

inline constexpr Allowed kFlag = from_to(0, 1);
inline constexpr Allowed kPackedHeads = from_to(1, 512);
inline constexpr Allowed kHeadGroupsMb = from_to(0, 1 << 30);

/// "" or why a query tile cannot have the rows of `pack_gqa` query heads: kernels take those of one
/// K/V head, all or one.
inline Reason wrong_pack(const Problem& problem, int pack_gqa) {
  if (pack_gqa == 1) return "";
  const int group = gqa_group(problem);
  if (pack_gqa == group) return "";
  return Reason("pack_gqa={} must be 1 or the {} query heads of a K/V head", pack_gqa, group);
}

}  // namespace attnforge
