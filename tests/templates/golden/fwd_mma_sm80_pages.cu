// generated: fwd_mma_sm80 block_m=32 num_warps=2 block_n=64 step_n=64 stages=1 q_in_regs=0 blocks_per_sm=4 pack_gqa=4 head_group_mb=20 head_dim_warps=1 pad_head_dim=0 num_splits=4
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/pages/params.h"
#include "parts/splits/step_combine.cuh"
#include "pieces/dense.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "parts/pages/keys.cuh"
#include "parts/splits/by_length.cuh"
#include "parts/splits/walk.cuh"
using namespace attnforge;
static_assert(sizeof(WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>) == 336);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .lengths = 2, .page_size = 16}, 32, 2, 64, 64, 1, 0, 4, 4, 20, 1, 0};
struct Pieces : DensePieces<kConfig> {
  using Lengths = UsedLengths;
  template <int kElementBytes> using Keys = PagedKeys<kElementBytes, kConfig.page_size>;
  using Splits = LengthSplits<UsedLengths, DensePieces<kConfig>::Walk, kConfig.block_n, kConfig.pack_gqa>;
  using Order = LengthSplitOrder<Splits>;
  using Walk = SplitWalk<DensePieces<kConfig>::Walk, Splits>;
  template <int kDtype, int kAlignment, bool kLse> using Output = PartialOutput<kConfig.head_dim_v, Splits>;
};
static_assert(seams::Lengths<Pieces::Lengths, WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>>, "Pieces::Lengths is not what pieces/concepts.cuh says");
static_assert(seams::Keys<Pieces::Keys<2>, QueryTile<WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, 1, Pieces::Lengths>, Pieces::Walk>, "Pieces::Keys<2> is not what pieces/concepts.cuh says");
static_assert(seams::Splits<Pieces::Splits, WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>>, "Pieces::Splits is not what pieces/concepts.cuh says");
static_assert(seams::Order<Pieces::Order, WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, QueryTile<WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, 1, Pieces::Lengths>>, "Pieces::Order is not what pieces/concepts.cuh says");
static_assert(seams::Walk<Pieces::Walk, WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, QueryTile<WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, 1, Pieces::Lengths>>, "Pieces::Walk is not what pieces/concepts.cuh says");
static_assert(seams::Output<Pieces::Output<kFp16, 16, true>, QueryTile<WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>, 1, Pieces::Lengths>>, "Pieces::Output<kFp16, 16, true> is not what pieces/concepts.cuh says");
static_assert(sizeof(WithPages<WithLengths<WithPartials<StepParams>>>) == 320);
extern "C" __global__ void __launch_bounds__(256, 4)
combine_splits(const __grid_constant__ WithPages<WithLengths<WithPartials<StepParams>>> p) {
  Combine<kConfig, Pieces::Lengths, Pieces::Splits>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_32x64(const __grid_constant__ WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>> p) {
  FwdMmaSm80<kConfig, Pieces, WithPages<WithLengths<WithPartials<FwdMmaSm80Params>>>>::run(p);
}
