// generated: fwd_materialized block_m=64 block_n=64 num_warps=4 stages=2 softmax_threads=256
#include "ladder/fwd_materialized/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdMaterializedParams) == 216);
inline constexpr FwdMaterializedConfig kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 1, .softcap = 1, .lse = 1, .alignment = 8, .rope = 0, .rope_dim = 0}, 64, 64, 4, 2, 256};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_materialized_fp16_d40v72_64x64_scores(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::scores(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.softmax_threads)
fwd_materialized_fp16_d40v72_64x64_softmax(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::softmax(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm())
fwd_materialized_fp16_d40v72_64x64_output(const __grid_constant__ FwdMaterializedParams p) {
  FwdMaterialized<kConfig>::output(p);
}
