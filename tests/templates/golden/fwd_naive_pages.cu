// generated: fwd_naive block_m=1 num_threads=64
#include "oracle/fwd_naive/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/pages/params.h"
#include "pieces/dense.cuh"
#include "parts/lengths/used_lengths.cuh"
#include "parts/pages/keys.cuh"
using namespace attnforge;
static_assert(sizeof(WithPages<WithLengths<FwdNaiveParams>>) == 272);
inline constexpr FwdNaiveConfig kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .lengths = 2, .page_size = 16}, 1, 64};
struct Pieces : DensePieces<kConfig> {
  using Lengths = UsedLengths;
  template <int kElementBytes> using Keys = PagedKeys<kElementBytes, kConfig.page_size>;
};
static_assert(seams::Lengths<Pieces::Lengths, WithPages<WithLengths<FwdNaiveParams>>>, "Pieces::Lengths is not what pieces/concepts.cuh says");
static_assert(seams::Keys<Pieces::Keys<2>, QueryTile<WithPages<WithLengths<FwdNaiveParams>>, 1, Pieces::Lengths>, Pieces::Walk>, "Pieces::Keys<2> is not what pieces/concepts.cuh says");
extern "C" __global__ void __launch_bounds__(kConfig.num_threads, kConfig.blocks_per_sm())
fwd_naive_bf16_d128_t64(const __grid_constant__ WithPages<WithLengths<FwdNaiveParams>> p) {
  FwdNaive<kConfig, Pieces, WithPages<WithLengths<FwdNaiveParams>>>::run(p);
}
