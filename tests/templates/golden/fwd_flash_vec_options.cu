// generated: fwd_flash_vec lanes_per_row=8 rows_per_thread=1 num_warps=2 block_n=32 keys_per_lane=4
#include "ladder/fwd_flash_vec/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdTiledParams) == 208);
inline constexpr FwdFlashVecConfig kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 1, .softcap = 1, .lse = 1, .alignment = 8, .rope = 0, .rope_dim = 0}, 8, 1, 2, 32, 4};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_flash_vec_fp16_d40v72_8x32(const __grid_constant__ FwdTiledParams p) {
  FwdFlashVec<kConfig>::run(p);
}
