// generated: bwd_naive num_threads=256
#include "oracle/bwd_naive/kernel.cuh"
#include "pieces/dense.cuh"
using namespace attnforge;
static_assert(sizeof(BwdNaiveParams) == 416);
inline constexpr BwdNaiveConfig kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 0, .softcap = 1, .lse = 0, .alignment = 8, .rope = 0, .rope_dim = 0, .accumulate = 1, .fp32_gradients = 1}, 256};
struct Pieces : DensePieces<kConfig> {};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads, kConfig.blocks_per_sm())
bwd_naive_fp16_d40x72_t256(const __grid_constant__ BwdNaiveParams p) {
  BwdNaive<kConfig, Pieces>::run(p);
}
