// generated: fwd_mma_sm80 block_m=64 num_warps=2 block_n=64 step_n=64 stages=1 q_in_regs=0 blocks_per_sm=3 pack_gqa=1 head_group_mb=10 head_dim_warps=1 pad_head_dim=0 num_splits=1
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/dense.cuh"
using namespace attnforge;
static_assert(sizeof(FwdMmaSm80Params) == 208);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0}, 64, 2, 64, 64, 1, 0, 3, 1, 10, 1, 0};
struct Pieces : DensePieces<kConfig> {};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_64x64(const __grid_constant__ FwdMmaSm80Params p) {
  FwdMmaSm80<kConfig, Pieces>::run(p);
}
