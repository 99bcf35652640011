// generated: fwd_flash_scalar lanes_per_row=8 num_warps=2 block_n=16 step_n=8
#include "ladder/fwd_flash_scalar/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdTiledParams) == 208);
inline constexpr FwdFlashScalarConfig kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 1, .softcap = 1, .lse = 1, .alignment = 8, .rope = 0, .rope_dim = 0}, 8, 2, 16, 8};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_flash_scalar_fp16_d40v72_8x16(const __grid_constant__ FwdTiledParams p) {
  FwdFlashScalar<kConfig>::run(p);
}
