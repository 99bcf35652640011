// generated: fwd_mma_sm80 block_m=64 num_warps=4 block_n=64 step_n=64 stages=2 q_in_regs=1 blocks_per_sm=2 pack_gqa=1 head_group_mb=0 head_dim_warps=1 pad_head_dim=0
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/user_code.cuh"
#include "pieces/softcap.cuh"
#include "pieces/dense.cuh"
#include "pieces/user_score.cuh"
#include "pieces/user_mask.cuh"
#include "pieces/masked_walk.cuh"
namespace attnforge {
struct UserCode {
  using Words = CodeParams<2>;
  ATTNFORGE_DEVICE static const Words& words(const FwdParams& fwd) {
    return reinterpret_cast<const WithCode<FwdMmaSm80Params, 2>&>(fwd).code;
  }
  static constexpr bool kScoreReadsByKey = false, kMaskReadsByKey = false, kTanh = false;
  template <class Tanh, class S>
  ATTNFORGE_DEVICE static S score([[maybe_unused]] const Words& attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, S s, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
    return static_cast<S>((
#line 1 "score"
s + slope[head] * (k - q)
#line 1 "entry"
    ));
  }
  ATTNFORGE_DEVICE static bool mask([[maybe_unused]] const Words& attnforge_code, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
    return static_cast<bool>((
#line 1 "mask"
k <= q && q - k < reach
#line 1 "entry"
    ));
  }
};
}  // namespace attnforge
using namespace attnforge;
static_assert(sizeof(WithCode<FwdMmaSm80Params, 2>) == 224);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 0, .left_bound = 0, .softcap = 1, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .user_score = 1, .user_mask = 1}, 64, 4, 64, 64, 2, 1, 2, 1, 0, 1, 0};
struct Pieces : DensePieces<kConfig> {
  using Score = UserScore<UserCode, SoftcapScore>;
  using Mask = UserMask<UserCode, DensePieces<kConfig>::Mask>;
  using Walk = MaskedWalk<DensePieces<kConfig>::Walk>;
};
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_64x64_e8b3b043(const __grid_constant__ WithCode<FwdMmaSm80Params, 2> p) {
  FwdMmaSm80<kConfig, Pieces, WithCode<FwdMmaSm80Params, 2>>::run(p);
}
