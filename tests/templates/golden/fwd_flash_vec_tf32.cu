// generated: fwd_flash_vec lanes_per_row=4 rows_per_thread=2 num_warps=8 block_n=32 keys_per_lane=2
#include "ladder/fwd_flash_vec/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdTiledParams) == 208);
inline constexpr FwdFlashVecConfig kConfig{{.dtype = 0, .dtype_k = 0, .dtype_v = 0, .dtype_o = 0, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0}, 4, 2, 8, 32, 2};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_flash_vec_fp32_d128_128x32(const __grid_constant__ FwdTiledParams p) {
  FwdFlashVec<kConfig>::run(p);
}
