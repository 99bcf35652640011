// near_problems.h - what won on problems that are like this one: places to begin a search, and what
// a plan takes before it trusts the model alone. Pure.
#pragma once

#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attnforge/problem.h"
#include "cache/cache.h"

namespace attnforge {

/// How far apart two problems are. First what differs of their kernels, so that a winner of another
/// kernel counts only where there is none of this one: the size of pages, lse, then which 16-bit
/// dtype, then head dims, and sums of these. Then how much lengths, batch and heads differ, in
/// powers of two: what 4096 keys want, 8192 keys want too, more or less. A power of two between
/// head dims counts as eight of these. Nothing when a winner of one says little of the other: other
/// masks, soft cap, alignment, tf32 or kind of lengths, fp32 and 16 bits, one query and many.
std::optional<std::pair<int, double>> distance(const Problem& a, const Problem& b);

/// Those of `chosen` whose problems are like `problem`, nearest first, each config once; not those
/// of the problem itself. Whether a config is legal for `problem` is not looked at.
std::vector<Chosen> near_winners(const Problem& problem, std::span<const Chosen> chosen);

}  // namespace attnforge
