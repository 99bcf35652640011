// generated: bwd_naive num_threads=64
#include "oracle/bwd_naive/kernel.cuh"
#include "pieces/dense.cuh"
using namespace attnforge;
static_assert(sizeof(BwdNaiveParams) == 416);
inline constexpr BwdNaiveConfig kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0}, 64};
struct Pieces : DensePieces<kConfig> {};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads, kConfig.blocks_per_sm())
bwd_naive_bf16_d128_t64(const __grid_constant__ BwdNaiveParams p) {
  BwdNaive<kConfig, Pieces>::run(p);
}
