// generated: bwd_mma_sm80 block_m=64 block_n=128 num_warps=8 roles=2 step_m=64 stages=1 ds_stages=1 keys_in_regs=0 dq=0 dq_vector=1 blocks_per_sm=1 head_group_mb=20
#include "bwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "backward/step_rows.cuh"
#include "backward/step_dq.cuh"
#include "pieces/dense.cuh"
#include "backward/plain_slope.cuh"
#include "backward/query_walk.cuh"
using namespace attnforge;
static_assert(sizeof(BwdMmaSm80Params) == 400);
inline constexpr BwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0}, 64, 128, 8, 2, 64, 1, 1, 0, 0, 1, 1};
struct Pieces : DensePieces<kConfig> {
  using Slope = PlainSlope;
  using Queries = QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0>;
};
static_assert(seams::Slope<Pieces::Slope, QueryTile<BwdMmaSm80Params, 1, Pieces::Lengths>>, "Pieces::Slope is not what pieces/concepts.cuh says");
static_assert(sizeof(BwdStepParams) == 416);
extern "C" __global__ void __launch_bounds__(256)
bwd_rows(const __grid_constant__ BwdStepParams p) {
  BwdRows<kConfig, Pieces::Lengths, 64>::run(p);
}
static_assert(BwdMmaSm80DqTile<kConfig>::kRows == 64 && BwdMmaSm80DqTile<kConfig>::kColumns == 128);
extern "C" __global__ void __launch_bounds__(256)
bwd_dq(const __grid_constant__ BwdStepParams p) {
  BwdDq<kConfig, Pieces::Lengths, BwdMmaSm80DqTile<kConfig>, 0>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
bwd_mma_sm80_bf16_d128_64x128(const __grid_constant__ BwdMmaSm80Params p) {
  BwdMmaSm80<kConfig, Pieces>::run(p);
}
