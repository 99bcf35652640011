// problem_words.cpp - the table of words. What values integers may have is said in problem.cpp.
#include "attnforge/problem_words.h"

#include "generator/problem_fields.h"

namespace attnforge {
namespace {

constexpr std::string_view kDTypeWords = "fp32, fp16 or bf16";

std::string_view allowed(std::string_view field) { return integer_field(field).allowed; }

}  // namespace

std::span<const ProblemWord> problem_words() {
  static const ProblemWord kWords[] = {
      {"bf16", "bf16", "dtype of all tensors", "bf16", ""},
      {"fp16", "fp16", "dtype of all tensors", "bf16", ""},
      {"fp32", "fp32", "dtype of all tensors; products at fp32 accuracy", "bf16", ""},
      {"q", "q=DTYPE", "dtype of q alone", "that of all", kDTypeWords},
      {"k", "k=DTYPE", "dtype of k alone", "that of all", kDTypeWords},
      {"v", "v=DTYPE", "dtype of v alone", "that of all", kDTypeWords},
      {"o", "o=DTYPE", "dtype of o alone", "that of all", kDTypeWords},
      {"batch", "batch=N", "sequences", "1", allowed("batch")},
      {"num_heads", "num_heads=Q:KV", "heads of q and of k and v; one number is both", "1",
       allowed("num_heads_q")},
      {"num_heads_q", "num_heads_q=N", "query heads, a multiple of num_heads_kv", "1",
       allowed("num_heads_q")},
      {"num_heads_kv", "num_heads_kv=N", "heads of k and v", "num_heads_q",
       allowed("num_heads_kv")},
      {"seqlen", "seqlen=Q:KV", "queries and keys of a sequence; one number is both", "1",
       allowed("seqlen_q")},
      {"seqlen_q", "seqlen_q=N", "queries of a sequence; of several lengths, the most", "1",
       allowed("seqlen_q")},
      {"seqlen_kv", "seqlen_kv=N", "keys of a sequence; of several lengths, the most", "seqlen_q",
       allowed("seqlen_kv")},
      {"head_dim", "head_dim=QK:V",
       "elements per head of q and k, and of v and o; one number is both", "64",
       allowed("head_dim")},
      {"head_dim_v", "head_dim_v=N", "elements per head of v and o", "head_dim",
       allowed("head_dim_v")},
      {"causal", "causal",
       "a query sees no key after its position; the last query stands at the last key", "every key",
       ""},
      {"window_left", "window_left=N", "keys before its position that a query sees", "-1",
       allowed("window_left")},
      {"window_right", "window_right=N", "keys after its position that a query sees", "-1",
       allowed("window_right")},
      {"softcap", "softcap=X", "s becomes X * tanh(s / X) after scaling; 0: not", "0",
       kFactorAllowed},
      {"softmax_scale", "softmax_scale=X", "multiplier of Q K^T; 0: 1 / sqrt(head_dim)", "0",
       kFactorAllowed},
      {"sinks", "sinks",
       "the softmax of a row counts a logit of its query head, which has no value; a run brings "
       "them",
       "keys alone", ""},
      {"batch_invariant", "batch_invariant",
       "the bits of a sequence's result do not depend on what else is in the batch", "they may",
       ""},
      {"deterministic", "deterministic", "of bwd: equal runs give equal bits", "they may differ",
       ""},
      {"accumulate", "accumulate", "of bwd: gradients are added to what dq, dk and dv hold",
       "they are written", ""},
      {"dlse", "dlse", "of bwd: a gradient of lse comes in too", "that of o alone", ""},
      {"gradients", "gradients=DTYPE", "of bwd: dtype of dq, dk and dv", "same", kGradientsAllowed},
      {"lse", "lse", "lse is written too: fp32, natural logarithm", "only o", ""},
      {"tf32", "tf32", "with fp32: products may round their inputs to TF32", "fp32 accuracy", ""},
      {"lengths", "lengths=KIND",
       "packed: sequences one after another; used: padded, the first rows count. A run's arrays on "
       "the GPU say how long each is",
       "fixed", "fixed, packed or used"},
      {"tokens", "tokens=Q:KV",
       "with lengths=packed: the most rows of q and of k and v; one number is both", "0",
       allowed("tokens_q")},
      {"tokens_q", "tokens_q=N", "the most rows of q and o", "0", allowed("tokens_q")},
      {"tokens_kv", "tokens_kv=N", "the most rows of k and v", "tokens_q", allowed("tokens_kv")},
      {"page_size", "page_size=N",
       "with lengths=used, or of q alone with lengths=packed: k and v lie in pages of so many "
       "rows; "
       "a run's table on the GPU says which pages a sequence has",
       "0", allowed("page_size")},
      {"rope", "rope=KIND",
       "q and k are rotated first: half, elements i and i + rope_dim / 2; interleaved, 2 i and 2 i "
       "+ 1",
       "none", "none, half or interleaved"},
      {"rope_dim", "rope_dim=N", "the first elements of a row that rotate", "0",
       allowed("rope_dim")},
      {"blocks", "blocks=Q:KV",
       "a mask of blocks of so many queries and keys: a run's lists say which are seen; one number "
       "is both",
       "no block mask", "each 16, 32, 64 or 128"},
      {"mask_block_q", "mask_block_q=N", "queries of a block", "0", allowed("mask_block_q")},
      {"mask_block_kv", "mask_block_kv=N", "keys of a block", "mask_block_q",
       allowed("mask_block_kv")},
      {"mask_heads", "mask_heads=N", "heads with a block mask of their own; 1: all share one", "1",
       allowed("mask_heads")},
      {"mask_batch", "mask_batch=N", "sequences with one of their own; 1: all share", "1",
       allowed("mask_batch")},
      {"mask_bits", "mask_bits", "partial blocks have a bit for each pair",
       "all of a present block", ""},
      {"density", "density=X",
       "about the share of blocks that is present: for estimates and tuning only", "0",
       kDensityAllowed},
      {"score", "score=\"TEXT\"",
       "C++ of what becomes of a score s after scaling, from batch, head, q, k, seqlen_q, "
       "seqlen_kv "
       "and args",
       "s", "an expression in double quotes"},
      {"mask", "mask=\"TEXT\"",
       "C++ of whether query q sees key k, among those that causal and the window let it see",
       "true", "an expression in double quotes"},
      {"args", "args=\"LIST\"", "what score and mask may name beside these, given to each run",
       "none",
       "types and names with commas between them, as in float* slope[num_heads_q], int window = "
       "1024"},
      {"dargs", "dargs=\"LIST\"",
       "of bwd: the arrays of args that get a gradient; a run adds to fp32 arrays", "none",
       "names, with commas between them, of arrays of floats that score reads; not with "
       "deterministic"},
      {"layout", "layout=ORDER",
       "of contiguous tensors, by the letters of batch, seqlen, heads, dim; any strides may be run",
       "bshd", "bshd, bhsd or packed_qkv"},
      {"alignment", "alignment=BYTES", "divides every address and stride", "16",
       allowed("alignment")},
  };
  return kWords;
}

}  // namespace attnforge
