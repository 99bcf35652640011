// generated: fwd_naive block_m=8 num_threads=64
#include "oracle/fwd_naive/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/user_code/code.cuh"
#include "pieces/dense.cuh"
#include "parts/user_code/score.cuh"
#include "parts/user_code/mask.cuh"
#include "pieces/masked_walk.cuh"
namespace attnforge {
struct UserCode {
  using Words = CodeParams<2>;
  static constexpr bool kScoreReadsByKey = false, kMaskReadsByKey = false, kTanh = false;
  template <class Tanh, class S>
  ATTNFORGE_DEVICE static auto score([[maybe_unused]] const Words& attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, S s, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
#line 1 "score"
return value_of_score((
#line 1 "score"
s + slope[head] * (k - q) ));
#line 1 "entry"
  }
  ATTNFORGE_DEVICE static bool mask([[maybe_unused]] const Words& attnforge_code, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
#line 1 "mask"
return value_of_mask((
#line 1 "mask"
1      && q - k < reach ));
#line 1 "entry"
  }
};
}  // namespace attnforge
using namespace attnforge;
static_assert(sizeof(WithCode<FwdNaiveParams, 2>) == 224);
inline constexpr FwdNaiveConfig kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 1, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .user_score = 1, .user_mask = 2, .text_bits = 1}, 8, 64};
struct Pieces : DensePieces<kConfig> {
  using Score = UserScore<UserCode, DensePieces<kConfig>::Score>;
  using Mask = UserMask<UserCode, DensePieces<kConfig>::Mask>;
  using Walk = MaskedWalk<DensePieces<kConfig>::Walk>;
};
static_assert(seams::Score<Pieces::Score, QueryTile<WithCode<FwdNaiveParams, 2>, 1, Pieces::Lengths>>, "Pieces::Score is not what pieces/concepts.cuh says");
static_assert(seams::Mask<Pieces::Mask, QueryTile<WithCode<FwdNaiveParams, 2>, 1, Pieces::Lengths>>, "Pieces::Mask is not what pieces/concepts.cuh says");
static_assert(seams::Walk<Pieces::Walk, WithCode<FwdNaiveParams, 2>, QueryTile<WithCode<FwdNaiveParams, 2>, 1, Pieces::Lengths>>, "Pieces::Walk is not what pieces/concepts.cuh says");
extern "C" __global__ void __launch_bounds__(kConfig.num_threads, kConfig.blocks_per_sm())
fwd_naive_bf16_d128_t64_e8b3b043(const __grid_constant__ WithCode<FwdNaiveParams, 2> p) {
  FwdNaive<kConfig, Pieces, WithCode<FwdNaiveParams, 2>>::run(p);
}
