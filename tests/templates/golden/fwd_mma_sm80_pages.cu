// generated: fwd_mma_sm80 block_m=32 num_warps=4 block_n=64 step_n=64 stages=2 q_in_regs=1 blocks_per_sm=1 pack_gqa=4 head_group_mb=20 head_dim_warps=2 pad_head_dim=0 num_splits=1
#include "fwd_mma_sm80/kernel.cuh"
#include "params_pages.h"
#include "steps/work_list/kernel.cuh"
#include "pieces/dense.cuh"
#include "pieces/used_lengths.cuh"
#include "pieces/paged_keys.cuh"
#include "pieces/work_list_order.cuh"
using namespace attnforge;
static_assert(sizeof(WithPages<WithLengths<FwdMmaSm80Params>>) == 272);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .lengths = 2, .page_size = 16}, 32, 4, 64, 64, 2, 1, 1, 4, 20, 2, 0};
struct Pieces : DensePieces<kConfig> {
  using Lengths = UsedLengths;
  template <int kElementBytes> using Keys = PagedKeys<kElementBytes, kConfig.page_size, WithPages<WithLengths<FwdMmaSm80Params>>>;
  using Order = WorkListOrder;
};
extern "C" __global__ void __launch_bounds__(1024)
work_list(const __grid_constant__ WithPages<WithLengths<StepParams>> p) {
  ListWork<Pieces::Lengths, Pieces::Walk, kConfig.block_m, kConfig.block_n, kConfig.pack_gqa>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_32x64(const __grid_constant__ WithPages<WithLengths<FwdMmaSm80Params>> p) {
  FwdMmaSm80<kConfig, Pieces, WithPages<WithLengths<FwdMmaSm80Params>>>::run(p);
}
