// generated: fwd_mma_sm80 block_m=128 num_warps=4 block_n=64 step_n=32 stages=2 q_in_regs=0 blocks_per_sm=2 pack_gqa=1 head_group_mb=33 head_dim_warps=1 pad_head_dim=0 num_splits=1
#include "fwd_mma_sm80/kernel.cuh"
#include "pieces/concepts.cuh"
#include "parts/lengths/params.h"
#include "parts/user_code/code.cuh"
#include "parts/softcap/score.cuh"
#include "parts/user_code/mask.cuh"
#include "parts/user_code/step_states.cuh"
#include "parts/user_code/terms.cuh"
#include "parts/key_lists/step_lists.cuh"
#include "parts/lengths/step_queue.cuh"
#include "pieces/dense.cuh"
#include "parts/user_code/score.cuh"
#include "parts/user_code/lists.cuh"
#include "parts/key_lists/walk.cuh"
#include "parts/key_lists/mask.cuh"
#include "parts/key_lists/keys.cuh"
#include "parts/lengths/queue_order.cuh"
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
  static constexpr int kTerms = 1;
  ATTNFORGE_DEVICE static constexpr TermRelation relation(int term) {
    constexpr TermRelation kRelations[] = {TermRelation::kAtMost};
    return kRelations[term];
  }
  template <class V>
  ATTNFORGE_DEVICE static V value_of_terms(const V* t) {
    return t[0];
  }
  template <int kTerm>
  ATTNFORGE_DEVICE static auto term_of_query([[maybe_unused]] const Words& attnforge_code, int batch, int head, int q, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
    if constexpr (kTerm == 0) return (q + (1) + (-1) * min(max(reach, -1073741824), 1073741824));
  }
  template <int kTerm>
  ATTNFORGE_DEVICE static auto term_of_key([[maybe_unused]] const Words& attnforge_code, int batch, int head, int k, int seqlen_q, int seqlen_kv) {
    [[maybe_unused]] const UserArray<float> slope(attnforge_code.words[0]);
    [[maybe_unused]] const int reach = int(u32(attnforge_code.words[1]));
    if constexpr (kTerm == 0) return (k);
  }
};
}  // namespace attnforge
using namespace attnforge;
static_assert(sizeof(WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>) == 320);
inline constexpr FwdMmaSm80Config kConfig{{.dtype = 2, .dtype_k = 2, .dtype_v = 2, .dtype_o = 2, .head_dim = 128, .head_dim_v = 128, .right_bound = 1, .left_bound = 0, .softcap = 1, .lse = 0, .alignment = 16, .rope = 0, .rope_dim = 0, .user_score = 1, .user_mask = 2, .text_bits = 1}, 128, 4, 64, 32, 2, 0, 2, 1, 33, 1, 0};
struct Pieces : DensePieces<kConfig> {
  using Score = UserScore<UserCode, SoftcapScore>;
  using Walk = ListWalk<kConfig.key_groups()>;
  using Mask = ListMask<DensePieces<kConfig>::Mask, TextBits<kConfig.block_m, kConfig.block_n>>;
  template <int kDtype> using Keys = GatheredKeys<kDtype, kConfig.key_groups(), kConfig.block_n / kConfig.key_groups()>;
  using Order = QueueOrder;
};
static_assert(seams::Score<Pieces::Score, QueryTile<WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, 1, Pieces::Lengths>>, "Pieces::Score is not what pieces/concepts.cuh says");
static_assert(seams::Walk<Pieces::Walk, WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, QueryTile<WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, 1, Pieces::Lengths>>, "Pieces::Walk is not what pieces/concepts.cuh says");
static_assert(seams::Mask<Pieces::Mask, QueryTile<WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, 1, Pieces::Lengths>>, "Pieces::Mask is not what pieces/concepts.cuh says");
static_assert(seams::Keys<Pieces::Keys<kBf16>, QueryTile<WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, 1, Pieces::Lengths>, Pieces::Walk>, "Pieces::Keys<kBf16> is not what pieces/concepts.cuh says");
static_assert(seams::Order<Pieces::Order, WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, QueryTile<WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>, 1, Pieces::Lengths>>, "Pieces::Order is not what pieces/concepts.cuh says");
static_assert(sizeof(WithKeyLists<WithCode<WithLengths<StepParams>, 2>>) == 304);
extern "C" __global__ void __launch_bounds__(256, 3)
mask_states(const __grid_constant__ WithKeyLists<WithCode<WithLengths<StepParams>, 2>> p) {
  MaskStates<Pieces::Lengths, UserRule<UserCode>, UserTerms<UserCode>, kConfig.block_m, kConfig.block_n, DensePieces<kConfig>::Mask, kConfig.text_bits, 16>::run(p);
}
extern "C" __global__ void __launch_bounds__(256, 4)
key_lists(const __grid_constant__ WithKeyLists<WithCode<WithLengths<StepParams>, 2>> p) {
  MakeListsAndQueue<MakeKeyLists<Pieces::Lengths, TextSource, kConfig.block_m, kConfig.key_groups(), kConfig.block_n / kConfig.key_groups(), DensePieces<kConfig>::Mask, 256, 0>, MakeTileQueue<Pieces::Lengths, Pieces::Walk, kConfig.block_m, kConfig.block_n, kConfig.pack_gqa, 256>>::run(p);
}
extern "C" __global__ void __launch_bounds__(kConfig.num_threads(), kConfig.blocks_per_sm)
fwd_mma_sm80_bf16_d128_128x64_e8b3b043(const __grid_constant__ WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>> p) {
  FwdMmaSm80<kConfig, Pieces, WithKeyLists<WithCode<WithLengths<FwdMmaSm80Params>, 2>>>::run(p);
}
