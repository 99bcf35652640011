// generated: fwd_mma_sm80 block_m=32 num_warps=2 block_n=32 step_n=32 stages=2 q_in_regs=0 blocks_per_sm=4 pack_gqa=4 head_group_mb=0 head_dim_warps=1 pad_head_dim=0 num_splits=33
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/splits/step_combine.cuh"
#include "pieces/dense.cuh"
#include "parts/splits/walk.cuh"
using namespace attnforge;
static_assert(sizeof(WithPartials<FwdMmaSm80Params>) == 272);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 1, .alignment = 16, .rope = 0, .rope_dim = 0}, 32, 2, 32, 32, 2, 0, 4, 4, 0, 1, 0};
struct Pieces : DensePieces<kConfig> {
  using Splits = GridSplits;
  using Order = SplitOrder<GridOrder<4>>;
  using Walk = SplitWalk<DensePieces<kConfig>::Walk, Splits>;
  template <int kDtype, int kAlignment, bool kLse> using Output = PartialOutput<kConfig.head_dim_v, Splits>;
};
static_assert(seams::Splits<Pieces::Splits, WithPartials<FwdMmaSm80Params>>, "Pieces::Splits is not what pieces/concepts.cuh says");
static_assert(seams::Order<Pieces::Order, WithPartials<FwdMmaSm80Params>, QueryTile<WithPartials<FwdMmaSm80Params>, 1, Pieces::Lengths>>, "Pieces::Order is not what pieces/concepts.cuh says");
static_assert(seams::Walk<Pieces::Walk, WithPartials<FwdMmaSm80Params>, QueryTile<WithPartials<FwdMmaSm80Params>, 1, Pieces::Lengths>>, "Pieces::Walk is not what pieces/concepts.cuh says");
static_assert(seams::Output<Pieces::Output<kFp16, 16, true>, QueryTile<WithPartials<FwdMmaSm80Params>, 1, Pieces::Lengths>>, "Pieces::Output<kFp16, 16, true> is not what pieces/concepts.cuh says");
static_assert(sizeof(WithPartials<StepParams>) == 256);
extern "C" __global__ void __launch_bounds__(256, 4)
combine_splits(const __grid_constant__ WithPartials<StepParams> p) {
  Combine<kConfig, Pieces::Lengths, Pieces::Splits>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_32x32(const __grid_constant__ WithPartials<FwdMmaSm80Params> p) {
  FwdMmaSm80<kConfig, Pieces, WithPartials<FwdMmaSm80Params>>::run(p);
}
