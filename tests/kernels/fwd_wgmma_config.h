// fwd_wgmma_config.h - configs of fwd_wgmma_sm90a as tests of the whole kernel begin with. To be
// included after the kernel.
#pragma once

#include "fwd_wgmma_sm90a/config.h"

namespace attnforge::test {

/// One tile of Q in shared memory where a block has one, two stages of K and of V.
constexpr FwdWgmmaSm90aConfig usual_config(int dtype, int head_dim, int block_n, int warpgroups,
                                           int grid) {
  FwdWgmmaSm90aConfig c{};
  c.dtype = c.dtype_k = c.dtype_v = c.dtype_o = dtype;
  c.head_dim = c.head_dim_v = head_dim;
  c.lse = 1;
  c.alignment = 16;
  c.warpgroups = warpgroups;
  c.block_n = block_n;
  c.k_stages = c.v_stages = 2;
  c.q_stages = grid == kGridPlain ? 1 : 2;
  c.grid = grid;
  c.blocks_per_sm = c.pack_gqa = 1;
  c.swizzle = 128;
  return c;
}
constexpr FwdWgmmaSm90aConfig with_q_in_regs(FwdWgmmaSm90aConfig c) {
  c.q_in_regs = c.q_stages = 1;
  return c;
}

}  // namespace attnforge::test
