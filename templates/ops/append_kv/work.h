// work.h - how an append shares out its work.
#pragma once

#include <cstdint>

#include "templates/ops/append_kv/params.h"

namespace attnforge {

/// How so many tokens are shared out on a GPU of num_sms: among as many warps as it holds at once
/// if there is work for these, each moving little, else each moving more.
AppendWork append_work(const AppendShape& shape, std::int64_t tokens, int heads_kv, int heads_q,
                       int num_sms);
/// Whether lengths are written by the block that arrives last, by AppendParams::counters, in a warp
/// of their own: else each block writes those of its own sequences, of one new row each. They may
/// replace those before.
bool counts_blocks(const AppendArgument& p);
/// Blocks of the grid for this work: more than a GPU holds at once would only keep the counter busy
/// at which all of them arrive.
unsigned append_grid(std::uint32_t blocks);

}  // namespace attnforge
