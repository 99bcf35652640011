// generated: fwd_naive block_m=8 num_threads=256
#include "oracle/fwd_naive/kernel.cuh"
#include "pieces/dense.cuh"
using namespace attnforge;
static_assert(sizeof(FwdNaiveParams) == 208);
inline constexpr FwdNaiveConfig kConfig{{.dtype = 1, .dtype_k = 1, .dtype_v = 1, .dtype_o = 1, .head_dim = 40, .head_dim_v = 72, .right_bound = 0, .left_bound = 0, .softcap = 1, .lse = 1, .alignment = 8, .rope = 0, .rope_dim = 0}, 8, 256};
struct Pieces : DensePieces<kConfig> {};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads, kConfig.blocks_per_sm())
fwd_naive_fp16_d40x72_t256(const __grid_constant__ FwdNaiveParams p) {
  FwdNaive<kConfig, Pieces>::run(p);
}
