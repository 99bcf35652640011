// generated: bwd_mma_sm80 block_m=128 block_n=128 num_warps=8 roles=2 step_m=64 stages=2 ds_stages=1 keys_in_regs=0 dq=2 dq_vector=4 blocks_per_sm=1 head_group_mb=30
#include "bwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/user_code/code.cuh"
#include "backward/plain_slope.cuh"
#include "parts/user_code/dargs.cuh"
#include "bwd_mma_sm80/dq_kernel.cuh"
#include "backward/step_rows.cuh"
#include "pieces/dense.cuh"
#include "backward/query_walk.cuh"
#include "parts/user_code/score.cuh"
#include "parts/user_code/slope.cuh"
namespace attnforge {
struct UserCode {
  using Words = CodeParams<6>;
  static constexpr bool kScoreReadsByKey = false, kMaskReadsByKey = false, kTanh = true;
  template <class Tanh, class S>
  ATTNFORGE_DEVICE static auto score([[maybe_unused]] const Words& attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, S s, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int n = int(u32(attnforge_code.words[1]));
    [[maybe_unused]] const UserArray<Fp16> bias(attnforge_code.words[2]);
    [[maybe_unused]] const auto &tanhf = attnforge_tanh, &tanh = tanhf;
#line 1 "score"
return value_of_score((
#line 1 "score"
s + slope[head] * (k - q) + tanhf(bias[q] * n) ));
#line 1 "entry"
  }
  static constexpr int kMostReads = 2;  // 0: unknown
  static constexpr bool kReadsWithoutQuery = false, kSlopeIsOne = true;
  template <class Tanh, class S>
  ATTNFORGE_DEVICE static auto score_of_reads([[maybe_unused]] const Words& attnforge_code, [[maybe_unused]] const Tanh& attnforge_tanh, OneRead& attnforge_reads, S s, int batch, int head, int q, KeyPosition k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const ReadArray<UserArray<float>> slope(attnforge_code.words[0], attnforge_code.words[4], attnforge_reads);
    [[maybe_unused]] const int n = int(u32(attnforge_code.words[1]));
    [[maybe_unused]] const ReadArray<UserArray<Fp16>> bias(attnforge_code.words[2], attnforge_code.words[3], attnforge_reads);
    [[maybe_unused]] const auto &tanhf = attnforge_tanh, &tanh = tanhf;
#line 1 "score"
return value_of_score((
#line 1 "score"
s + slope[head] * (k - q) + tanhf(bias[q] * n) ));
#line 1 "entry"
  }
};
}  // namespace attnforge
using namespace attnforge;
static_assert(sizeof(WithCode<BwdMmaSm80Params, 6>) == 448);
inline constexpr BwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 0, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .user_score = 1, .dargs = 1}, 128, 128, 8, 2, 64, 2, 1, 0, 2, 4, 1};
struct Pieces : DensePieces<kConfig> {
  using Queries = QueryWalk<kConfig.left_bound != 0, kConfig.right_bound != 0>;
  using Score = UserScore<UserCode, DensePieces<kConfig>::Score>;
  using Slope = UserSlope<UserCode, DensePieces<kConfig>::Score, PlainSlope>;
  using Dargs = DargsOfRows<UserCode, UserRow<UserCode>, DensePieces<kConfig>::Score>;
};
static_assert(seams::Score<Pieces::Score, QueryTile<WithCode<BwdMmaSm80Params, 6>, 1, Pieces::Lengths>>, "Pieces::Score is not what pieces/concepts.cuh says");
static_assert(seams::Slope<Pieces::Slope, QueryTile<WithCode<BwdMmaSm80Params, 6>, 1, Pieces::Lengths>>, "Pieces::Slope is not what pieces/concepts.cuh says");
extern "C" __global__ void __launch_bounds__(kConfig.own_dq().num_threads(), kConfig.own_dq().blocks_per_sm)
bwd_mma_sm80_bf16_d128_128x128_dq_9de02f22(const __grid_constant__ WithCode<BwdMmaSm80Params, 6> p) {
  BwdMmaSm80Dq<kConfig, Pieces, WithCode<BwdMmaSm80Params, 6>>::run(p);
}
static_assert(sizeof(WithCode<BwdStepParams, 6>) == 464);
extern "C" __global__ void __launch_bounds__(256)
bwd_rows(const __grid_constant__ WithCode<BwdStepParams, 6> p) {
  BwdRows<kConfig, Pieces::Lengths, 128>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
bwd_mma_sm80_bf16_d128_128x128_9de02f22(const __grid_constant__ WithCode<BwdMmaSm80Params, 6> p) {
  BwdMmaSm80<kConfig, Pieces, WithCode<BwdMmaSm80Params, 6>>::run(p);
}
