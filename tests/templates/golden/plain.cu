// generated: fwd_mma_sm80 block_m=64 num_warps=2 block_n=48 step_n=48 stages=3 q_in_regs=1 blocks_per_sm=4 pack_gqa=1 head_group_mb=0 head_dim_warps=1 pad_head_dim=0 num_splits=1
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "pieces/dense.cuh"
#include "parts/softcap/score.cuh"
using namespace attnforge;
static_assert(sizeof(FwdMmaSm80Params) == 208);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 1, .softcap = 1, .lse = 1, .alignment = 8, .rope = 0, .rope_dim = 0}, 64, 2, 48, 48, 3, 1, 4, 1, 0, 1, 0};
struct Pieces : DensePieces<kConfig> {
  using Score = SoftcapScore;
};
static_assert(seams::Score<Pieces::Score, QueryTile<FwdMmaSm80Params, 1, Pieces::Lengths>>, "Pieces::Score is not what pieces/concepts.cuh says");
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_fp16_d40v72_64x48(const __grid_constant__ FwdMmaSm80Params p) {
  FwdMmaSm80<kConfig, Pieces>::run(p);
}
