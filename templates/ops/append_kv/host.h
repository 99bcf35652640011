// host.h - the kernel behind attnforge::append_kv() as a source and a launch.
#pragma once

#include <cstdint>

#include "generator/launch.h"
#include "generator/source.h"
#include "templates/ops/append_kv/params.h"

namespace attnforge {

/// What its code depends on. Rows begin at multiples of `alignment` bytes: 2, 4, 8 or 16.
struct AppendCode {
  AppendShape shape{};
  int alignment = 16;

  friend bool operator==(const AppendCode& a, const AppendCode& b) {
    return a.shape.dtype == b.shape.dtype && a.shape.head_dim == b.shape.head_dim &&
           a.shape.head_dim_v == b.shape.head_dim_v && a.shape.rope == b.shape.rope &&
           a.shape.rope_dim == b.shape.rope_dim && a.alignment == b.alignment;
  }
};

Source append_source(const AppendCode& code);

/// Without a grid, and with an argument that each run brings, which counts_blocks() or does not.
LaunchStep append_step(bool counts);
/// How `tokens` are shared out on a GPU of num_sms: among as many warps as it holds at once
/// if there is work for these, each moving little, else each moving more.
AppendWork append_work(const AppendShape& shape, std::int64_t tokens, int heads_kv, int heads_q,
                       int num_sms);
/// Whether lengths are written by the block that arrives last, by AppendParams::counters, in a warp
/// of their own: else each block writes those of its own sequences.
bool counts_blocks(const AppendParams& p);
/// Blocks of the grid for this work: more than a GPU holds at once would only keep the counter busy
/// at which all of them arrive.
unsigned append_grid(std::uint32_t blocks);

}  // namespace attnforge
