// generated: bwd_mma_sm80 block_m=128 block_n=32 num_warps=4 roles=2 step_m=64 stages=2 ds_stages=2 keys_in_regs=1 dq=0 dq_vector=1 blocks_per_sm=1 head_group_mb=0
#include "bwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "backward/step_rows.cuh"
#include "backward/step_dq.cuh"
#include "pieces/dense.cuh"
#include "backward/query_walk.cuh"
#include "parts/softcap/score.cuh"
#include "parts/softcap/slope.cuh"
using namespace attnforge;
static_assert(sizeof(BwdMmaSm80Params) == 400);
inline constexpr BwdMmaSm80Config kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 1, .softcap = 1, .lse = 0, .alignment = 8, .rope = 0, .rope_dim = 0, .accumulate = 1, .fp32_gradients = 1}, 128, 32, 4, 2, 64, 2, 2, 1, 0, 1, 1};
struct Pieces : DensePieces<kConfig> {
  using Queries = QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0>;
  using Score = SoftcapScore;
  using Slope = SoftcapSlope;
};
static_assert(seams::Score<Pieces::Score, QueryTile<BwdMmaSm80Params, 1, Pieces::Lengths>>, "Pieces::Score is not what pieces/concepts.cuh says");
static_assert(seams::Slope<Pieces::Slope, QueryTile<BwdMmaSm80Params, 1, Pieces::Lengths>>, "Pieces::Slope is not what pieces/concepts.cuh says");
static_assert(sizeof(BwdStepParams) == 416);
extern "C" __global__ void __launch_bounds__(256)
bwd_rows(const __grid_constant__ BwdStepParams p) {
  BwdRows<kConfig, Pieces::Lengths, 128>::run(p);
}
static_assert(BwdMmaSm80DqTile<kConfig>::kRows == 128 && BwdMmaSm80DqTile<kConfig>::kColumns == 48);
extern "C" __global__ void __launch_bounds__(256)
bwd_dq(const __grid_constant__ BwdStepParams p) {
  BwdDq<kConfig, Pieces::Lengths, BwdMmaSm80DqTile<kConfig>, 0>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
bwd_mma_sm80_fp16_d40v72_128x32(const __grid_constant__ BwdMmaSm80Params p) {
  BwdMmaSm80<kConfig, Pieces>::run(p);
}
