// generated: fwd_flash_scalar lanes_per_row=2 num_warps=4 block_n=64 step_n=4
#include "ladder/fwd_flash_scalar/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdTiledParams) == 208);
inline constexpr FwdFlashScalarConfig kConfig{{.dtype = 0, .dtype_k = 0, .dtype_v = 0, .dtype_o = 0, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0}, 2, 4, 64, 4};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_flash_scalar_fp32_d128_64x64(const __grid_constant__ FwdTiledParams p) {
  FwdFlashScalar<kConfig>::run(p);
}
