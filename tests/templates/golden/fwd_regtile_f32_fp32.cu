// generated: fwd_regtile_f32 math=1 warp_m=16 warps_m=1 warps_n=8 warps_d=1 step_n=16 steps=1 stages=2 q_in_regs=1 blocks_per_sm=1 pack_gqa=1 head_group_mb=0
#include "fwd_regtile_f32/kernel.cuh"
#include "pieces/dense.cuh"
using namespace attnforge;
static_assert(sizeof(FwdRegtileF32Params) == 208);
inline constexpr FwdRegtileF32Config kConfig{{.dtype = 0, .dtype_k = 0, .dtype_v = 0, .dtype_o = 0, .head_dim = 64, .head_dim_v = 64, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, .rope_dim = 0}, 1, 16, 1, 8, 1, 16, 1, 2, 1, 1, 1, 0};
struct Pieces : DensePieces<kConfig> {};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_regtile_f32_fp32_d64_16x128(const __grid_constant__ FwdRegtileF32Params p) {
  FwdRegtileF32<kConfig, Pieces>::run(p);
}
