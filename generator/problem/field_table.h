// field_table.h - the table of problem_fields(): every word, in the order of the text form.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <string_view>

#include "generator/formats/element_formats.h"
#include "generator/problem/field_kinds.h"

namespace attnforge::fields {

// ---- 1. What values may be ----

/// A multiple of `step` from `least` to `most`.
template <std::int64_t least, std::int64_t most, std::int64_t step = 1>
constexpr bool within(std::int64_t value) {
  return least <= value && value <= most && value % step == 0;
}
inline constexpr std::int64_t kMaxBatch = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxGrid = 65535;  // of heads
// A position plus kOpenWindow (2^30), or a window's edge, must fit in 32 bits.
inline constexpr std::int64_t kMaxSeqlen = std::int64_t{1} << 27;
inline constexpr std::int64_t kMaxWindow = std::int64_t{1} << 30;
inline constexpr std::int64_t kMostTokens = std::int64_t{1} << 30;
constexpr bool mask_block_ok(std::int64_t value) {
  return value == 0 || value == 16 || value == 32 || value == 64 || value == 128;
}
constexpr bool page_size_ok(std::int64_t value) {
  return value == 1 || value == 2 || value == 4 || within<0, 65536, 8>(value);
}
constexpr bool alignment_ok(std::int64_t value) {
  return value == 2 || value == 4 || value == 8 || value == 16;
}
// Outside of these the scale times log2(e), or 1 / softcap, is no longer a usable float.
inline bool factor_ok(float value) { return value == 0.0f || (1e-20f <= value && value <= 1e20f); }
inline bool density_ok(float value) { return value == 0.0f || (1e-6f <= value && value <= 1.0f); }

inline constexpr std::string_view kDTypeWords = "fp32, fp16 or bf16";
inline constexpr std::string_view kQDTypeWords = "fp32, fp16, bf16 or e4m3";
inline constexpr std::string_view
    kKvDTypeWords = "fp32, fp16, bf16, int8, int4, e4m3, e5m2, q8_0 or q4_0";
inline constexpr std::string_view kHeads = "a whole number from 1 to 65535";
inline constexpr std::string_view kSeqlen = "a whole number from 0 to 134217728 (2^27)";
inline constexpr std::string_view kHeadDim = "a multiple of 8 from 8 to 512";
inline constexpr std::string_view kWindow = "-1 (open) or a whole number up to 1073741824 (2^30)";
inline constexpr std::string_view
    kTokens = "0 (batch * seqlen) or a whole number up to 1073741824 (2^30)";
inline constexpr std::string_view kMaskBlock = "0 (no block mask), 16, 32, 64 or 128";
inline constexpr std::string_view kFactor = "0 or a number from 1e-20 to 1e20";

// The names of the enumerators, in their order.
inline constexpr auto kDTypes = [] {
  std::array<std::string_view, std::size(kElementFormats)> names;
  for (const ElementFormat& row : kElementFormats) names[static_cast<int>(row.dtype)] = row.name;
  return names;
}();
static_assert(std::ranges::all_of(kDTypes, [](std::string_view name) {
  return kKvDTypeWords.find(name) != std::string_view::npos;
}));
/// Those of all tensors: before the formats of caches.
inline constexpr std::span kFloats = std::span(kDTypes).first(static_cast<int>(DType::kInt8));
inline constexpr std::string_view kOps[] = {"fwd", "bwd", "merge", "append"};
inline constexpr std::string_view kLayouts[] = {"bshd", "bhsd", "packed_qkv"};
inline constexpr std::string_view kLengths[] = {"fixed", "packed", "used"};
inline constexpr std::string_view kRopes[] = {"none", "interleaved", "half"};
inline constexpr std::string_view kKvScales[] = {"none",    "tensor",  "head",    "token",
                                                 "group32", "group64", "group128"};
inline constexpr std::string_view kGradients[] = {"same", "fp32"};

// ---- 2. What buckets make of them, and what must fit to others ----

/// To the nearest power of two: from the square root of 2 on, the mantissa's bits become one more
/// of the exponent.
inline float round_density(const Problem& p) {
  constexpr std::uint32_t kMantissa = (1u << 23) - 1, kRootOfTwo = 0x3504F3;
  const auto bits = std::bit_cast<std::uint32_t>(static_cast<float>(effective_density(p)));
  const auto nearest = std::bit_cast<float>((bits + kMantissa + 1 - kRootOfTwo) & ~kMantissa);
  return std::clamp(nearest, 0x1p-19f, 1.0f);
}

/// Kernels cap scores before softmax_scale multiplies them, so the cap in their units must be a
/// usable float too.
inline void check_cap_in_scores(const Problem& p) {
  constexpr double kSmallest = 1e-30, kLargest = 1e30;
  if (p.softcap == 0.0f) return;
  const double cap = double{p.softcap} / double{effective_softmax_scale(p)};
  if (kSmallest <= cap && cap <= kLargest) return;
  reject_problem("softcap={} divided by softmax_scale={} must be from {} to {}", p.softcap,
                 effective_softmax_scale(p), kSmallest, kLargest);
}

// ---- 3. The table ----

// Bits of ProblemField::apart.
inline constexpr int kOtherPages = 1, kOtherOutputs = 2, kOtherDType = 4, kOtherHeadDims = 8;

inline constexpr ProblemField kFields[] = {
    {.word = {"bf16", "bf16", "dtype of all tensors", "bf16", ""},
     .value = kDTypeOfAll,
     .other_names = "dtype bfloat16",
     .ops = kAllOps},
    {.word = {"fp16", "fp16", "dtype of all tensors", "bf16", ""},
     .value = kDTypeOfAll,
     .other_names = "float16 half",
     .ops = kAllOps},
    {.word = {"fp32", "fp32", "dtype of all tensors; products at fp32 accuracy", "bf16", ""},
     .value = kDTypeOfAll,
     .other_names = "float float32",
     .ops = kAllOps},
    {.word = {"e4m3", "e4m3", "dtype of q, k and v; o is bf16, or what o=DTYPE says", "bf16", ""},
     .value = kDTypeOfAll,
     .other_names = "fp8 float8_e4m3fn"},
    // Where all have one dtype, the text has that in place of these.
    {.word = {"q", "q=DTYPE", "dtype of q alone", "that of all", kQDTypeWords},
     .value = choice<&Problem::dtype_q>(kDTypes, never),
     .apart = kOtherDType},
    {.word = {"k", "k=DTYPE", "dtype of k alone", "that of all", kKvDTypeWords},
     .value = choice<&Problem::dtype_k>(kDTypes, never),
     .apart = kOtherDType},
    {.word = {"v", "v=DTYPE", "dtype of v alone", "that of all", kKvDTypeWords},
     .value = choice<&Problem::dtype_v>(kDTypes, never),
     .apart = kOtherDType},
    {.word = {"o", "o=DTYPE", "dtype of o alone", "that of all", kDTypeWords},
     .value = choice<&Problem::dtype_o>(kFloats, never),
     .apart = kOtherDType,
     .ops = kNotAppend},
    {.word = {"kv_scale", "kv_scale=WHAT",
              "of k and v of 8 or 4 bits, and q of 8: what shares a scale; token: a row of a head, "
              "groupN: N elements of one",
              "none", "none, tensor, head, token, group32, group64 or group128"},
     .value = choice<&Problem::kv_scale>(kKvScales),
     .ops = kNotMerge,
     .not_backward = "gradients are of k and v in 16 bits or more"},
    {.word =
         {"kv_zero", "kv_zero",
          "of int4 with scales of rows: a value is number * scale + zero, which lies after that",
          "no zero points", ""},
     .value = flag<&Problem::kv_zero>(),
     .ops = kNotMerge,
     .not_backward = "gradients are of k and v in 16 bits or more"},
    {.word = {"batch", "batch=N", "sequences", "1", "a whole number from 0 to 1048576 (2^20)"},
     .value = integer<&Problem::batch>(within<0, kMaxBatch>, always),
     .other_names = "b",
     .ops = kAllOps},
    {.word = {"num_heads", "num_heads=Q:KV", "heads of q and of k and v; one number is both", "1",
              kHeads},
     .value = pair("num_heads_q", "num_heads_kv"),
     .other_names = "heads nheads n_heads num_attention_heads",
     .ops = kAllOps},
    {.word = {"num_heads_q", "num_heads_q=N", "query heads, a multiple of num_heads_kv", "1",
              kHeads},
     .value = integer<&Problem::num_heads_q>(within<1, kMaxGrid>, always),
     .other_names = "q_heads num_q_heads",
     .ops = kAllOps},
    {.word = {"num_heads_kv", "num_heads_kv=N", "heads of k and v", "num_heads_q", kHeads},
     .value = integer<&Problem::num_heads_kv>(within<1, kMaxGrid>, always),
     .other_names = "kv_heads num_kv_heads num_key_value_heads",
     .ops = kNotMerge},
    {.word = {"seqlen", "seqlen=Q:KV", "queries and keys of a sequence; one number is both", "1",
              kSeqlen},
     .value = pair("seqlen_q", "seqlen_kv"),
     .other_names = "seq sequence_length",
     .ops = kAllOps},
    {.word = {"seqlen_q", "seqlen_q=N", "queries of a sequence; of several lengths, the most", "1",
              kSeqlen},
     .value = integer<&Problem::seqlen_q>(within<0, kMaxSeqlen>, always),
     .ops = kAllOps},
    {.word = {"seqlen_kv", "seqlen_kv=N", "keys of a sequence; of several lengths, the most",
              "seqlen_q", kSeqlen},
     .value = integer<&Problem::seqlen_kv>(within<0, kMaxSeqlen>, always),
     .ops = kNotMerge},
    {.word = {"head_dim", "head_dim=QK:V",
              "elements per head of q and k, and of v and o; one number is both", "64", kHeadDim},
     .value = integer_pair<&Problem::head_dim>(within<8, 512, 8>, "head_dim", "head_dim_v"),
     .other_names = "head_size hdim d",
     .apart = kOtherHeadDims,
     .ops = kAllOps},
    {.word = {"head_dim_v", "head_dim_v=N", "elements per head of v and o", "head_dim", kHeadDim},
     .value = integer<&Problem::head_dim_v>(within<8, 512, 8>, always),
     .apart = kOtherHeadDims,
     .ops = kNotMerge},
    {.word = {"layout", "layout=ORDER",
              "of contiguous tensors, by the letters of batch, seqlen, heads, dim; any strides may "
              "be run",
              "bshd", "bshd, bhsd or packed_qkv"},
     .value = choice<&Problem::layout>(kLayouts),
     .round = [](Problem& p) { p.layout = Layout::kBshd; }},  // kernels take strides
    {.word = {"causal", "causal",
              "a query sees no key after its position; the last query stands at the last key",
              "every key", ""},
     .value = flag<&Problem::causal>(),
     .other_names = "is_causal"},
    {.word = {"window_left", "window_left=N", "keys before its position that a query sees", "-1",
              kWindow, true},
     .value = integer<&Problem::window_left>(within<-1, kMaxWindow>),
     .other_names = "window sliding_window window_size"},
    {.word = {"window_right", "window_right=N", "keys after its position that a query sees", "-1",
              kWindow, true},
     .value = integer<&Problem::window_right>(within<-1, kMaxWindow>)},
    {.word = {"softcap", "softcap=X", "s becomes X * tanh(s / X) after scaling; 0: no cap", "0",
              kFactor, true},
     .value = number<&Problem::softcap>(factor_ok),
     .other_names = "logits_soft_cap soft_cap logit_cap softmax_cap",
     // A usual value: only whether there is one changes the kernel.
     .round =
         [](Problem& p) {
           if (p.softcap > 0.0f) p.softcap = 30.0f;
         },
     .check = check_cap_in_scores},
    {.word = {"lse", "lse", "lse is written too: fp32, natural logarithm", "only o", ""},
     .value = flag<&Problem::lse>(),
     .apart = kOtherOutputs,
     .ops = kNotAppend,
     .not_backward = "it always comes in: leave it out"},
    {.word = {"tf32", "tf32", "with fp32: products may round their inputs to TF32", "fp32 accuracy",
              "", true},
     .value = flag<&Problem::tf32>()},
    {.word = {"fast_sums", "fast_sums",
              "with e4m3: sums over keys may have the 14 bits of tensor cores", "fp32 sums", ""},
     .value = flag<&Problem::fast_sums>(),
     .ops = only(Op::kForward)},
    {.word = {"softmax_scale", "softmax_scale=X", "multiplier of Q K^T; 0: 1 / sqrt(head_dim)", "0",
              kFactor},
     .value = number<&Problem::softmax_scale>(factor_ok),
     .other_names = "scale sm_scale",
     .round = [](Problem& p) { p.softmax_scale = 0.0f; }},
    {.word = {"sinks", "sinks",
              "the softmax of a row counts a logit of its query head, which has no value; a run "
              "brings them",
              "keys alone", ""},
     .value = flag<&Problem::sinks>()},
    {.word = {"batch_invariant", "batch_invariant",
              "the bits of a sequence's result do not depend on what else is in the batch",
              "they may", ""},
     .value = flag<&Problem::batch_invariant>(),
     .not_backward = "leave it out; deterministic is of bwd",
     .excludes = "blocks",
     .instead = "leave one of them out"},
    {.word = {"deterministic", "deterministic", "of bwd: equal runs give equal bits",
              "they may differ", ""},
     .value = flag<&Problem::deterministic>(),
     .ops = only(Op::kBackward)},
    {.word = {"accumulate", "accumulate", "of bwd: gradients are added to what dq, dk and dv hold",
              "they are written", ""},
     .value = flag<&Problem::accumulate>(),
     .apart = kOtherOutputs,
     .ops = only(Op::kBackward)},
    {.word = {"dlse", "dlse", "of bwd: a gradient of lse comes in too", "that of o alone", ""},
     .value = flag<&Problem::dlse>(),
     .ops = only(Op::kBackward)},
    {.word = {"gradients", "gradients=DTYPE", "of bwd: dtype of dq, dk and dv", "same",
              "same (as q, k and v) or fp32"},
     .value = choice<&Problem::fp32_gradients>(kGradients),
     .apart = kOtherOutputs,
     .round = [](Problem& p) { p.fp32_gradients = has_wider_gradients(p); },
     .ops = only(Op::kBackward)},
    {.word = {"lengths", "lengths=KIND",
              "packed: sequences one after another; used: padded, the first rows count. A run's "
              "arrays on the GPU say how long each is",
              "fixed", "fixed, packed or used"},
     .value = choice<&Problem::lengths>(kLengths),
     .other_names = "varlen=packed",
     .ops = kNotMerge},
    {.word = {"tokens", "tokens=Q:KV",
              "with lengths=packed: the most rows of q and of k and v; one number is both", "0",
              kTokens},
     .value = pair("tokens_q", "tokens_kv"),
     .ops = kNotMerge},
    {.word = {"tokens_q", "tokens_q=N", "the most rows of q and o", "0", kTokens},
     .value = integer<&Problem::tokens_q>(within<0, kMostTokens>,
                                          either_differs<&Problem::tokens_q, &Problem::tokens_kv>),
     .ops = kNotMerge},
    {.word = {"tokens_kv", "tokens_kv=N", "the most rows of k and v", "tokens_q", kTokens},
     .value = integer<&Problem::tokens_kv>(within<0, kMostTokens>,
                                           either_differs<&Problem::tokens_q, &Problem::tokens_kv>),
     .ops = kNotMerge},
    {.word = {"page_size", "page_size=N",
              "with lengths=used, or of q alone with lengths=packed: k and v lie in pages of so "
              "many rows; a run's table on the GPU says which pages a sequence has",
              "0", "0 (no pages), 1, 2, 4 or a multiple of 8 up to 65536"},
     .value = integer<&Problem::page_size>(page_size_ok),
     .other_names = "page pages paged",
     .apart = kOtherPages,
     .ops = kNotMerge,
     .not_backward = "k and v of one that is trained lie in one piece",
     .needs = "lengths",
     .why_needed = "lengths=used, or lengths=packed for queries one after another: of a cache in "
                   "pages only the GPU knows how many keys a sequence has",
     .excludes = "blocks",
     .instead = "leave one of them out"},
    {.word = {"rope", "rope=KIND",
              "q and k are rotated first: half, elements i and i + rope_dim / 2; interleaved, 2 i "
              "and 2 i + 1",
              "none", "none, interleaved or half", true},
     .value = choice<&Problem::rope>(kRopes),
     .apart = 0,
     .ops = kNotMerge,
     .not_backward = "rotate q and k before, and dq and dk back after it",
     .excludes = "lengths",
     .instead = "rotate q and k before the run"},
    {.word = {"rope_dim", "rope_dim=N", "the first elements of a row that rotate", "0",
              "0 (all) or a multiple of 8 up to head_dim", true},
     .value = integer<&Problem::rope_dim>(within<0, 512, 8>),
     .apart = 0,
     .meant = [](const Problem& p) -> std::int64_t { return effective_rope_dim(p); },
     .round = [](Problem& p) { p.rope_dim = p.rope_dim == p.head_dim ? 0 : p.rope_dim; },
     .ops = kNotMerge},
    {.word = {"blocks", "blocks=Q:KV",
              "a mask of blocks of so many queries and keys: a run's lists say which are seen; one "
              "number is both",
              "no block mask", "each 16, 32, 64 or 128"},
     .value = pair("mask_block_q", "mask_block_kv", has_block_mask),
     .other_names = "block_size"},
    {.word = {"mask_block_q", "mask_block_q=N", "queries of a block", "0", kMaskBlock},
     .value = integer<&Problem::mask_block_q>(mask_block_ok, never)},
    {.word = {"mask_block_kv", "mask_block_kv=N", "keys of a block", "mask_block_q", kMaskBlock},
     .value = integer<&Problem::mask_block_kv>(mask_block_ok, never)},
    {.word = {"mask_heads", "mask_heads=N",
              "heads with a block mask of their own; 1: all share one", "1",
              "1, num_heads_kv or num_heads_q"},
     .value = integer<&Problem::mask_heads>(within<1, kMaxGrid>)},
    {.word = {"mask_batch", "mask_batch=N", "sequences with one of their own; 1: all share", "1",
              "1 or batch"},
     .value = integer<&Problem::mask_batch>(within<1, kMaxBatch>)},
    {.word = {"mask_bits", "mask_bits", "partial blocks have a bit for each pair",
              "all of a present block", ""},
     .value = flag<&Problem::mask_bits>()},
    {.word = {"density", "density=X",
              "about the share of blocks that is present: for estimates and tuning only", "0",
              "0 (unknown, taken as 0.5) or a number from 1e-06 to 1"},
     .value = number<&Problem::density>(density_ok),
     .other_names = "sparsity",
     .round = [](Problem& p) { p.density = has_block_mask(p) ? round_density(p) : p.density; }},
    {.word = {"parts", "parts=N", "of merge: attentions to parts of the keys that become one", "0",
              "a whole number from 1 to 32"},
     .value = integer<&Problem::parts>(within<0, kMostMergedStates>),
     .ops = only(Op::kMerge)},
    {.word = {"queries", "queries", "of append with rope: q is rotated too, and goes to o",
              "k alone", ""},
     .value = flag<&Problem::queries>(),
     .ops = only(Op::kAppend)},
    {.word = {"lengths_after", "lengths_after",
              "of append: rows that each sequence has afterwards are written", "they are not", ""},
     .value = flag<&Problem::lengths_after>(),
     .ops = only(Op::kAppend)},
    {.word = {"alignment", "alignment=BYTES", "divides every address and stride", "16",
              "2, 4, 8 or 16 (bytes)"},
     .value = integer<&Problem::alignment_bytes>(alignment_ok),
     .ops = kAllOps},
    {.word = {"args", "args=\"LIST\"",
              "what score and mask may name beside these, given to each run", "none",
              "types and names with commas between them, as in float* slope[num_heads_q], int "
              "window = 1024"},
     .value = text<&Problem::args>()},
    {.word = {"score", "score=\"TEXT\"",
              "C++ of what becomes of a score s after scaling, from batch, head, q, k, seqlen_q, "
              "seqlen_kv and args",
              "s", "an expression in double quotes"},
     .value = text<&Problem::score>()},
    {.word = {"mask", "mask=\"TEXT\"",
              "C++ of whether query q sees key k, among those that causal and the window let it "
              "see",
              "true", "an expression in double quotes"},
     .value = text<&Problem::mask>()},
    {.word = {"dargs", "dargs=\"LIST\"",
              "of bwd: the arrays of args that get a gradient; a run adds to fp32 arrays", "none",
              "names, with commas between them, of arrays of floats that score reads; not with "
              "deterministic"},
     .value = text<&Problem::dargs>(),
     .ops = only(Op::kBackward)},
};

}  // namespace attnforge::fields
