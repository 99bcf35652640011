// near_problems.h - what won on problems that are like this one: good places to begin a search.
// Pure.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "attnforge/problem.h"
#include "cache/cache.h"

namespace attnforge {

/// How far apart two problems are: first what differs of their kernels (lse, then which 16-bit
/// dtype, then head dims), then how much lengths, batch and heads differ, in powers of two. Nothing
/// when a winner of one says little of the other: other masks, soft cap, rope, alignment or tf32,
/// fp32 and 16 bits, one query and many.
std::optional<std::pair<int, double>> distance(const Problem& a, const Problem& b);

/// The configs of `chosen` whose problems are like `problem`, nearest first, each once; not those
/// of the problem itself.
std::vector<std::string> near_winners(const Problem& problem, std::span<const Chosen> chosen);

}  // namespace attnforge
