// generated: fwd_materialized block_m=64 block_n=128 num_warps=8 stages=1 softmax_threads=256
#include "ladder/fwd_materialized/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdMaterializedParams) == 216);
inline constexpr FwdMaterializedConfig kConfig{{.dtype = 0, .dtype_k = 0, .dtype_v = 0, .dtype_o = 0, .head_dim = 64, .head_dim_v = 64, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, .rope_dim = 0}, 64, 128, 8, 1, 256};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_materialized_fp32_d64_64x128_scores(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::scores(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.softmax_threads)
fwd_materialized_fp32_d64_64x128_softmax(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::softmax(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_materialized_fp32_d64_64x128_output(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::output(p);
}
