// strategy.h - ways to deal with head dims, under names that other projects use, as configs of the
// families here: for bench --strategy, which compares them.
#pragma once

#include <string>
#include <vector>

#include "attnforge/tune.h"

namespace attnforge::cli {

/// "standard,split_k" -> its names, of which split_k is an older one. Throws
/// Error(kInvalidArgument) listing the known ones.
std::vector<std::string> strategies_of(const std::string& list);

/// The plan that a strategy makes of `problem`:
///   standard        head dims padded to the next power of two in shared memory and in products:
///                   the config of fwd_mma_sm80 for the padded head dims
///   variable_block  exact head dims: fwd_mma_sm80 as it is
///   split_head_dims two warps with half of the head dims each, whose sums are added
///   register_tiled  fp32 outer products in registers: fwd_regtile_f32, which takes fp32 only
/// `tuning`: how to tune first what the strategy starts from (the padded head dims have a winner of
/// their own), its family aside; nullptr: not at all. Throws Error(kUnsupported) where the strategy
/// cannot serve the problem.
Plan apply_strategy(const std::string& strategy, const Problem& problem, Device& device,
                    const TuneOptions* tuning);

}  // namespace attnforge::cli
