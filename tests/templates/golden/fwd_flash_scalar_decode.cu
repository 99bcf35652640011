// generated: fwd_flash_scalar lanes_per_row=16 num_warps=8 block_n=64 step_n=8
#include "ladder/fwd_flash_scalar/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdTiledParams) == 208);
inline constexpr FwdFlashScalarConfig kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, .rope_dim = 0}, 16, 8, 64, 8};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_flash_scalar_bf16_d128_16x64(const __grid_constant__ FwdTiledParams p) {
  FwdFlashScalar<kConfig>::run(p);
}
