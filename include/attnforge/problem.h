// problem.h - an attention problem: what is computed, not how. Plain data with one text form.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attnforge/cxx20.h"
#include "attnforge/element_format.h"

namespace attnforge {

enum class Op : std::uint8_t {
  kForward,
  kBackward,  // gradients: from q, k, v, o, lse and that of o to those of q, k and v
  kMerge,     // one attention of several to parts of the keys
  kAppend,    // new rows of k and v into a cache
};

/// How attnforge lays out tensors that it allocates itself (tune, bench, run) and the usual strides
/// of the caller. Any strides with a contiguous last dimension may be passed to a plan whatever its
/// layout says.
enum class Layout : std::uint8_t {
  kBshd,       // [batch, seqlen, num_heads, head_dim]
  kBhsd,       // [batch, num_heads, seqlen, head_dim]
  kPackedQkv,  // [batch, seqlen, num_heads_q + 2 * num_heads_kv, head_dim]; needs seqlen_q ==
               // seqlen_kv, head_dim == head_dim_v
};

/// Whether sequences are as long as the problem says, or only the GPU knows how long each is
/// (Tensors::lengths). Then seqlen_q and seqlen_kv are the longest that one may be.
enum class Lengths : std::uint8_t {
  kFixed,
  kPacked,  // one after another in tensors without a batch: q [tokens_q, num_heads_q, head_dim],
            // ..., lse [num_heads_q, tokens_q]
  kUsed,    // padded: the first rows of each sequence count; others are neither read nor written
};

/// Rotary embedding of q and k before their product (Su et al. 2021): which two of a row's first
/// rope_dim elements are rotated together, by the angle in column i of the tables.
enum class Rope : std::uint8_t {
  kNone,
  kInterleaved,  // elements 2 i and 2 i + 1 (GPT-J)
  kHalf,         // elements i and i + rope_dim / 2 (GPT-NeoX, Llama)
};

/// What shares a scale of quantised k and v, and of q of e4m3: a value is the stored number times
/// its scale, fp32 (Tensors::k_scale, v_scale), and with Problem::kv_zero a zero point more. Groups
/// are of neighbouring elements of a row, the last of which may have fewer.
enum class KvScale : std::uint8_t {
  kNone,    // stored numbers are values
  kTensor,  // one scale
  kHead,    // [num_heads_kv], or of each sequence; of q one for the query heads of a K/V head
  kToken,   // one for each row of each head
  kGroup32,
  kGroup64,
  kGroup128,
};

/// The most parts of one merge; results of merges can be merged.
inline constexpr int kMostMergedStates = 32;

/// Softmax(softmax_scale * Q K^T, masked) V for `batch` sequences.
///   q [batch, num_heads_q, seqlen_q, head_dim],   k [batch, num_heads_kv, seqlen_kv, head_dim]
///   o [batch, num_heads_q, seqlen_q, head_dim_v], v [batch, num_heads_kv, seqlen_kv, head_dim_v]
///   lse [batch, num_heads_q, seqlen_q] fp32, natural logarithm, optional
/// Query head h reads key/value head h / (num_heads_q / num_heads_kv).
/// Query row i stands at key position i + seqlen_kv - seqlen_q (bottom-right alignment); it sees
/// the keys in [position - window_left, position + window_right]. Causal is window_right = 0. A row
/// that sees no key gives o = 0, lse = -inf.
/// With `sinks`, the softmax of a row has one more score, the logit of its query head
/// (Tensors::sinks), which has no value: o = sum p v / (sum p + exp(sink)), and lse counts it. It
/// is taken as it is, neither scaled nor capped. A row that sees no key gives o = 0, lse = the
/// logit. With a block mask (mask_block_q > 0) a row sees a key only if its block is present, and
/// in a partial block with mask_bits only if its bit is set as well. Block row i is of queries i *
/// mask_block_q and on, block column j of keys j * mask_block_kv and on, both counted from the
/// sequence's first. Which blocks are present comes with a run (Tensors, attnforge/block_mask.h).
/// With `page_size`, k and v are [pages, num_heads_kv, page_size, head_dim]: key j of a sequence is
/// row j % page_size of the page that the run's table has in its column j / page_size.
/// k and v may be of 8 or 4 bits (is_low_bit()), each of its own format or of q's. Their values are
/// those numbers times scales, which `kv_scale` says how many share. q and o are then fp16 or bf16;
/// or q, k and v are e4m3, with kv_scale kNone, kTensor, kHead or kToken: with that each row of a
/// head of q and of k has a scale, and v's are of heads.
/// With `batch_invariant` the bits of a sequence's result do not depend on what else is in the
/// batch, nor on its size.
/// With `rope`, q and k are rotated first: (x, y) becomes (x cos - y sin, y cos + x sin), cos and
/// sin from row rope_offset + j of the tables for key j, rope_offset + position for a query. The
/// rotated elements are rounded to the dtype of q or k. Tables and rope_offset come with a run
/// (Tensors).
/// With `score` and `mask`, these texts compute with s, batch, head (of queries), q, k (positions
/// among the queries and keys of the sequence, from 0), seqlen_q, seqlen_kv, and the arguments that
/// a run has for `args` (Tensors::code_arguments).
/// Backward (Op::kBackward): dout [batch, num_heads_q, seqlen_q, head_dim_v], of o's dtype, comes
/// in with q, k, v, o and lse, and dq, dk and dv go out, which have the shapes of q, k and v.
/// With s the scores as above, p = exp(s - lse) (0 where lse is -inf) and ds = p (dout v - sum over
/// columns of dout o, + dlse), dv = p dout, dq = softmax_scale ds k, dk = softmax_scale ds q; the
/// query heads of a key/value head add up. That holds whatever o and lse are. With `sinks`, which
/// come in again and change nothing of these, their gradients go out too: that of a head is the sum
/// over its rows of exp(sink - lse) (dlse - sum over columns of dout o). With `dargs` so do those
/// of the arrays named there: to that of an element every read of it by `score` adds ds of the
/// text's score times the derivative of the text with respect to what was read.
/// Merge (Op::kMerge): `parts` times o and lse of the same queries, each of keys of its own, become
/// o and lse of the keys of all: the mean of their o, weighted by exp(lse), and the logarithm of
/// the sum of these weights. dtype_q is that of the parts' o; there are no q, k and v.
/// Append (Op::kAppend): row i of the new rows of sequence b, seqlen_q of them or packed, becomes
/// row lengths.kv[b] + i of its cache, which has seqlen_kv rows at most, in one piece or in pages.
/// With `rope` k is rotated by the angles of that position, and with `queries` q is too, which goes
/// to o. Tensors::cache has the caches. dtype_q is that of new rows, dtype_k and dtype_v those of
/// the caches: the same, or of 8 or 4 bits, which rows are quantised to (attnforge/append_kv.h).
struct Problem {
  Op op = Op::kForward;
  // These belong to kBackward alone, as fp32_gradients below:
  bool deterministic = false;  // equal runs give equal bits
  bool accumulate = false;     // the gradients are added to what dq, dk and dv hold
  bool dlse = false;           // a gradient of lse comes in too
  int parts = 0;               // of kMerge alone: 1 to kMostMergedStates
  bool queries = false;        // of kAppend alone: q is rotated too
  bool lengths_after = false;  // of kAppend alone: rows that sequences have afterwards are written
  // These belong to both kForward and kBackward; dtypes, sizes, lse and alignment to kMerge too:
  DType dtype_q = DType::kBf16;
  DType dtype_k = DType::kBf16;
  DType dtype_v = DType::kBf16;
  DType dtype_o = DType::kBf16;
  KvScale kv_scale = KvScale::kNone;  // not kNone: k or v is of a format of caches
  // A value is number * scale + zero: after each scale of a row lies its zero point, the value of
  // number 0. For int4, with kToken or groups: KIVI, xFormers and ggml's q4_1 add a minimum in the
  // same way, which a product takes as a term of its own: of K times the sum of q, of V that of p.
  bool kv_zero = false;
  Layout layout = Layout::kBshd;
  bool causal = false;
  bool lse = false;          // also write lse
  bool tf32 = false;         // fp32 only: products may round inputs to TF32, 10 bits of mantissa
  int alignment_bytes = 16;  // of every pointer and every stride: 2, 4, 8 or 16; checked when a
                             // plan runs
  std::int64_t batch = 1;
  std::int64_t num_heads_q = 1;
  std::int64_t num_heads_kv = 1;   // divides num_heads_q
  std::int64_t seqlen_q = 1;       // 0 allowed
  std::int64_t seqlen_kv = 1;      // 0 allowed
  int head_dim = 64;               // multiple of 8, 8 to 512
  int head_dim_v = 64;             // multiple of 8, 8 to 512
  std::int64_t window_left = -1;   // keys before the query's position that it sees; -1: all
  std::int64_t window_right = -1;  // keys after it; -1: all. Causal requires -1 here or 0
  float softcap = 0.0f;            // 0: none; else s = softcap * tanh(s / softcap) after scaling
  float softmax_scale = 0.0f;      // 0: 1 / sqrt(head_dim)
  bool sinks = false;              // the softmax of a row counts a logit of its head
  bool batch_invariant = false;    // one config for every batch; not with a block mask
  // q, k and v of e4m3 only: sums over keys may be those of tensor cores, of about 14 bits. Else
  // these are of a few hundred keys, and are added up in fp32.
  bool fast_sums = false;
  bool fp32_gradients = false;        // dq, dk and dv are fp32; else as q, k and v
  Lengths lengths = Lengths::kFixed;  // not with a rope
  // k and v lie in pages of page_size rows, and a run's table (Tensors::pages) says which pages a
  // sequence has. With kUsed, or with kPacked queries; how many keys a sequence has is given as for
  // kUsed. A multiple of 8, 8 to 65536; 0: in one piece. Not with a block mask.
  int page_size = 0;
  // kPacked: the most rows that q and o, and k and v may have; 0: batch * seqlen. Else 0.
  std::int64_t tokens_q = 0;
  std::int64_t tokens_kv = 0;
  Rope rope = Rope::kNone;
  int rope_dim = 0;  // leading elements of a row that rotate: a multiple of 8 up to head_dim; 0:
                     // all
  int mask_block_q = 0;   // queries of a block of the block mask: 16, 32, 64 or 128; 0: no mask
  int mask_block_kv = 0;  // keys of a block; 0 together with mask_block_q
  std::int64_t mask_heads = 1;  // that have a mask of their own: 1, num_heads_kv or num_heads_q
  std::int64_t mask_batch = 1;  // sequences that have one: 1 or batch
  bool mask_bits = false;       // partial blocks have a bit for each pair
  // About how many of the blocks are present, up to 1; 0: unknown, taken as half. Says how long a
  // run takes and nothing of what is computed: for estimates and for tuning.
  float density = 0.0f;
  // C++ of the caller's, compiled into the kernel (docs/USER_CODE.md); "": none. Any byte is part
  // of the problem: another spelling is another problem.
  std::string score;  // an expression: what becomes of a score s after softmax_scale and softcap
  std::string mask;   // an expression: whether a query sees a key that the window lets it see
  std::string args;   // what both may name besides the problem's sizes: "float* slope, int window"
  // Backward: which arrays of args, all of floats that `score` names, get a gradient: "slope,
  // bias". A run adds them to fp32 arrays (Tensors::code_arguments). Not with deterministic, but of
  // an aligned array; "whole bias" is written as that array is (docs/USER_CODE.md).
  std::string dargs;

  friend bool operator==(const Problem&, const Problem&) = default;
};

/// Reads the text form, e.g.
///   "fwd bf16 batch=1 num_heads_q=32 num_heads_kv=8 seqlen=4096 head_dim=128 causal lse"
///   "bwd bf16 batch=1 num_heads=16 seqlen=1024 head_dim=128 causal deterministic"
///   "merge fp32 o=bf16 batch=1 num_heads=16 seqlen=1024 head_dim=128 lse parts=2"
///   "append bf16 batch=8 num_heads=32:8 seqlen=1:4096 head_dim=128 page_size=64 rope=half queries"
/// Words are separated by blanks, in any order after the op. Shorthands: num_heads=32:8 or
/// num_heads=32, seqlen=4096:8192 (queries:keys) or seqlen=4096, head_dim=192:128, with
/// lengths=packed tokens=20000:30000 or tokens=20000. dtypes: one word for all, or q=fp16 k=fp16
/// v=fp16 o=fp16, and k=int8 v=int4 kv_scale=token. Texts of code stand in double quotes, with \"
/// \\ and \n for a quote, a backslash and the end of a line: mask="k <= q". Defaults are those of
/// the struct; head_dim_v follows head_dim, num_heads_kv follows num_heads_q and seqlen_kv follows
/// seqlen_q. Validates. Throws Error(kInvalidProblem) naming the word, its value and what is
/// allowed.
ATTNFORGE_API Problem parse_problem(std::string_view text);

/// Canonical text: parse_problem(to_string(p)) == p. Default options are left out, sizes never.
ATTNFORGE_API std::string to_string(const Problem& problem);

/// Throws Error(kInvalidProblem) naming the field, its value and what is allowed.
ATTNFORGE_API void validate(const Problem& problem);

ATTNFORGE_API std::string_view to_string(Op op);            // "fwd", "bwd", "merge", "append"
ATTNFORGE_API std::string_view to_string(Layout layout);    // "bshd", "bhsd", "packed_qkv"
ATTNFORGE_API std::string_view to_string(Rope rope);        // "none", "interleaved", "half"
ATTNFORGE_API std::string_view to_string(Lengths lengths);  // "fixed", "packed", "used"
ATTNFORGE_API std::string_view to_string(KvScale scale);  // "none", "tensor", "head", "token", ...

/// The multiplier of QK^T that is used: softmax_scale, or its default.
ATTNFORGE_API float effective_softmax_scale(const Problem& problem);

/// Whether gradients are computed.
inline bool is_backward(const Problem& problem) { return problem.op == Op::kBackward; }

/// Whether it has q, k and v.
inline bool is_attention(const Problem& problem) {
  return problem.op == Op::kForward || problem.op == Op::kBackward;
}

/// The forward problem, with lse, whose o and lse a backward problem takes. A forward problem is
/// returned as it is.
ATTNFORGE_API Problem forward_of(const Problem& problem);

/// The dtype of dq, dk or dv, when that of q, k or v is `input`.
inline DType gradient_dtype(const Problem& problem, DType input) {
  return problem.fp32_gradients ? DType::kFp32 : input;
}

/// Whether blocks of a mask say what is seen.
inline bool has_block_mask(const Problem& problem) { return problem.mask_block_q != 0; }

/// The share of its blocks that are present: 1 without a block mask, density, or its default.
ATTNFORGE_API double effective_density(const Problem& problem);

/// Rows and columns of blocks that a sequence has: the last of each may be cut short. 0 without a
/// block mask.
struct MaskBlocks {
  std::int64_t q, kv;
};
ATTNFORGE_API MaskBlocks mask_blocks(const Problem& problem);

/// Whether k or v is of a format of caches.
inline bool has_low_bit_kv(const Problem& problem) {
  return is_low_bit(problem.dtype_k) || is_low_bit(problem.dtype_v);
}
/// What shares a scale of v. Of q, k and v of e4m3 with kToken: rows of q and of k have scales of
/// their own, v's are of heads.
inline KvScale scale_of_v(const Problem& problem) {
  return is_low_bit(problem.dtype_q) && problem.kv_scale == KvScale::kToken ? KvScale::kHead
                                                                            : problem.kv_scale;
}
/// Elements of a row that share a scale: 32, 64 or 128; 0: all of it, where there are scales.
inline int scale_group(const Problem& problem) {
  return problem.kv_scale < KvScale::kGroup32
             ? 0
             : 32 << (static_cast<int>(problem.kv_scale) - static_cast<int>(KvScale::kGroup32));
}
/// Scales of a row of `columns` elements, zero points among them, where rows have scales: kToken or
/// groups.
inline int scales_of_row(const Problem& problem, int columns) {
  const int group = scale_group(problem);
  return (group == 0 ? 1 : (columns + group - 1) / group) * (problem.kv_zero ? 2 : 1);
}

/// Whether k and v lie in pages.
inline bool has_pages(const Problem& problem) { return problem.page_size != 0; }

/// Whether k and v are packed: with pages only q and o are.
inline bool has_packed_keys(const Problem& problem) {
  return problem.lengths == Lengths::kPacked && !has_pages(problem);
}

/// Pages of a sequence of seqlen_kv keys, and the columns of a page table. 0 without pages.
inline std::int64_t pages_of_sequence(const Problem& p) {
  return has_pages(p) ? (p.seqlen_kv + p.page_size - 1) / p.page_size : 0;
}

/// Pages of a pool that attnforge makes itself, of k and of v: those of all sequences, and a
/// quarter more that are free.
inline std::int64_t pages_of_pool(const Problem& problem) {
  const std::int64_t needed = problem.batch * pages_of_sequence(problem);
  return needed + (needed + 3) / 4;
}

/// How many elements of a row of q or k rotate: rope_dim, or its default; 0 without rope.
ATTNFORGE_API int effective_rope_dim(const Problem& problem);

/// Rows of q and o, and of k and v, of all sequences: with kPacked the most that there may be.
struct Tokens {
  std::int64_t q, kv;
};
ATTNFORGE_API Tokens total_tokens(const Problem& problem);

/// The rope_offset below which the first query would stand before row 0 of the tables: 0, or
/// seqlen_q - seqlen_kv when there are more queries than keys.
ATTNFORGE_API std::int64_t least_rope_offset(const Problem& problem);

/// The window as two bounds relative to the query's position, with causal folded in; -1 means open
/// on that side.
struct Window {
  std::int64_t left;
  std::int64_t right;
};
inline Window effective_window(const Problem& problem) {
  return {.left = problem.window_left, .right = problem.causal ? 0 : problem.window_right};
}

/// A problem of fixed lengths that takes about as long: itself, or sequences of a usual length. For
/// estimates.
ATTNFORGE_API Problem typical_problem(const Problem& problem);

/// How many (query, key) pairs of one head of one sequence windows let through, those of a mask
/// text among them. Exact, O(1); with a block mask about as many as its density says. Of a merge
/// pairs of a query and a part. What else a text hides, work_of() counts.
ATTNFORGE_API std::int64_t visible_pairs(const Problem& problem);

/// Floating point operations of `pairs` pairs: 2 * (head_dim + head_dim_v) each; 2.5 times that for
/// backward, which has five products in place of two.
ATTNFORGE_API double flops_of_pairs(const Problem& problem, double pairs);

/// flops_of_pairs() of the visible_pairs() of all heads of typical_problem(): for estimates. What
/// is known of the work, and whether anything is, says work_of().
ATTNFORGE_API double flops(const Problem& problem);

/// Bytes of q, k, v, the rows of rope's tables and the lists of a block mask read once and o, lse
/// written once. Backward: of o, lse and their gradients read once too, and those of q, k and v
/// written once.
ATTNFORGE_API double minimum_bytes(const Problem& problem);

}  // namespace attnforge
