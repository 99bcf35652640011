// generated: fwd_wmma block_m=32 num_warps=2 block_n=128 step_n=64 stages=2 q_in_regs=1 blocks_per_sm=1 head_group_mb=20
#include "ladder/fwd_wmma/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdWmmaParams) == 208);
inline constexpr FwdWmmaConfig kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, .rope_dim = 0}, 32, 2, 128, 64, 2, 1, 1, 20};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_wmma_bf16_d128_32x128(const __grid_constant__ FwdWmmaParams p) {
  FwdWmma<kConfig>::run(p);
}
