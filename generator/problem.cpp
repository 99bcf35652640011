// problem.cpp - what makes a problem valid, and what follows from its sizes.
#include "attnforge/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "attnforge/error.h"
#include "generator/problem_fields.h"
#include "generator/user_code.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMaxHeadsTotal = 2147483647;
// Far beyond any memory, and its bytes times a few still fit in 64 bits.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 30;  // a row's number is an int in kernels
constexpr double kMaxElements = 281474976710656.0;          // 2^48
constexpr double kUnknownDensity = 0.5;
constexpr std::int64_t kMaxMaskRows = std::int64_t{1} << 30;  // an index of row_begin is an int
constexpr std::int64_t kMaxPages = std::int64_t{1} << 30;     // a page's number is an int

[[noreturn]] void reject(const std::string& message) { reject_problem(message); }

void check_dtype(std::string_view name, DType dtype, int alignment_bytes) {
  if (alignment_bytes < size_bytes(dtype)) {
    reject(fmt::format("alignment={} must be at least the {} bytes of an element of {}={}",
                       alignment_bytes, size_bytes(dtype), name, to_string(dtype)));
  }
}

double elements(std::int64_t tokens, std::int64_t num_heads, std::int64_t head_dim) {
  return static_cast<double>(tokens) * static_cast<double>(num_heads) *
         static_cast<double>(head_dim);
}

double elements_q(const Problem& p) {
  return elements(total_tokens(p).q, p.num_heads_q, p.head_dim);
}
double elements_k(const Problem& p) {
  return elements(total_tokens(p).kv, p.num_heads_kv, p.head_dim);
}
double elements_v(const Problem& p) {
  return elements(total_tokens(p).kv, p.num_heads_kv, p.head_dim_v);
}
double elements_o(const Problem& p) {
  return elements(total_tokens(p).q, p.num_heads_q, p.head_dim_v);
}

/// Rows of blocks of all masks.
double mask_rows(const Problem& p) {
  return static_cast<double>(mask_blocks(p).q) * static_cast<double>(p.mask_heads) *
         static_cast<double>(p.mask_batch);
}

bool mask_within_limits(const Problem& p) {
  return mask_rows(p) <= static_cast<double>(kMaxMaskRows);
}

bool tokens_within_limits(const Problem& p) {
  const Tokens tokens = total_tokens(p);
  return p.lengths != Lengths::kPacked ||
         std::max(tokens.q, has_pages(p) ? 0 : tokens.kv) <= kMaxTokens;
}

bool pages_within_limits(const Problem& p) {
  const auto pages = static_cast<double>(pages_of_pool(p));
  const auto row = static_cast<double>(p.num_heads_kv * std::max(p.head_dim, p.head_dim_v));
  return pages <= static_cast<double>(kMaxPages) && pages * p.page_size * row <= kMaxElements;
}

void check_products(const Problem& p) {
  if (products_within_limits(p)) return;
  if (!pages_within_limits(p)) {
    reject(
        fmt::format("batch={} sequences of seqlen_kv={} in pages of page_size={} rows are more "
                    "than 2^30 pages or 2^48 elements",
                    p.batch, p.seqlen_kv, p.page_size));
  }
  if (!tokens_within_limits(p)) {
    reject(
        fmt::format("batch={} seqlen_q={} seqlen_kv={} may be more than 2^30 rows; say how many "
                    "there are at most with tokens=",
                    p.batch, p.seqlen_q, p.seqlen_kv));
  }
  if (!mask_within_limits(p)) {
    reject(
        fmt::format("mask_batch={} mask_heads={} and seqlen_q={} in blocks of mask_block_q={} make "
                    "more than 2^30 rows of blocks; let heads or sequences share a mask",
                    p.mask_batch, p.mask_heads, p.seqlen_q, p.mask_block_q));
  }
  if (p.batch * p.num_heads_q > kMaxHeadsTotal) {
    reject(fmt::format("batch={} times num_heads_q={} must be at most {}", p.batch, p.num_heads_q,
                       kMaxHeadsTotal));
  }
  reject(fmt::format(
      "batch={} num_heads_q={} num_heads_kv={} seqlen_q={} seqlen_kv={} head_dim={} head_dim_v={} "
      "make a tensor of more than 2^48 elements",
      p.batch, p.num_heads_q, p.num_heads_kv, p.seqlen_q, p.seqlen_kv, p.head_dim, p.head_dim_v));
}

void check_layout(const Problem& p) {
  if (p.layout != Layout::kPackedQkv) return;
  if (p.tokens_q != p.tokens_kv) {
    reject(fmt::format("layout=packed_qkv needs tokens_q={} and tokens_kv={} to be equal",
                       p.tokens_q, p.tokens_kv));
  }
  if (p.seqlen_q != p.seqlen_kv) {
    reject(fmt::format("layout=packed_qkv needs seqlen_q={} and seqlen_kv={} to be equal",
                       p.seqlen_q, p.seqlen_kv));
  }
  if (p.head_dim != p.head_dim_v) {
    reject(fmt::format("layout=packed_qkv needs head_dim={} and head_dim_v={} to be equal",
                       p.head_dim, p.head_dim_v));
  }
  if (p.dtype_q != p.dtype_k || p.dtype_q != p.dtype_v) {
    reject(fmt::format("layout=packed_qkv needs one dtype, not q={} k={} v={}",
                       to_string(p.dtype_q), to_string(p.dtype_k), to_string(p.dtype_v)));
  }
}

void check_rope(const Problem& p) {
  if (p.rope == Rope::kNone && p.rope_dim != 0) {
    reject(fmt::format("rope_dim={} needs rope=interleaved or rope=half", p.rope_dim));
  }
  if (p.rope_dim > p.head_dim) {
    reject(fmt::format("rope_dim={} must be at most head_dim={}", p.rope_dim, p.head_dim));
  }
}

void check_lengths(const Problem& p) {
  if (p.lengths == Lengths::kFixed && (p.tokens_q != 0 || p.tokens_kv != 0)) {
    reject(fmt::format("tokens_q={} tokens_kv={} need lengths=packed", p.tokens_q, p.tokens_kv));
  }
  if (p.lengths == Lengths::kUsed && (p.tokens_q != 0 || p.tokens_kv != 0)) {
    reject(
        fmt::format("tokens_q={} tokens_kv={} need lengths=packed: those of lengths=used are "
                    "batch * seqlen",
                    p.tokens_q, p.tokens_kv));
  }
  if (p.lengths != Lengths::kFixed && p.rope != Rope::kNone) {
    reject(fmt::format("rope={} does not go with lengths={}; rotate q and k before the run",
                       to_string(p.rope), to_string(p.lengths)));
  }
  if (p.lengths != Lengths::kPacked) return;
  const auto check = [&](char side, std::int64_t tokens, std::int64_t seqlen) {
    const std::int64_t most = p.batch * seqlen;
    if (tokens > most) {
      reject(
          fmt::format("tokens_{0}{1}={2} is more than batch={3} sequences of seqlen_{0}{1}={4} "
                      "can have",
                      side, side == 'k' ? "v" : "", tokens, p.batch, seqlen));
    }
  };
  check('q', p.tokens_q, p.seqlen_q);
  check('k', p.tokens_kv, p.seqlen_kv);
}

/// What goes with gradients alone, and what does not go with them.
void check_op(const Problem& p) {
  const auto needs = [&](bool there, std::string_view word) {
    if (there) reject(fmt::format("{} is of bwd alone; leave it out of {}", word, to_string(p.op)));
  };
  const auto excludes = [&](bool there, std::string_view word, std::string_view instead) {
    if (there) reject(fmt::format("{} does not go with bwd; {}", word, instead));
  };
  if (p.op == Op::kForward) {
    needs(p.deterministic, "deterministic");
    needs(p.accumulate, "accumulate");
    needs(p.dlse, "dlse");
    needs(p.fp32_gradients, "gradients=fp32");
    needs(!p.dargs.empty(), "dargs");
  } else if (p.op == Op::kBackward) {
    excludes(p.lse, "lse", "it always comes in: leave it out");
    excludes(p.rope != Rope::kNone, "rope", "rotate q and k before, and dq and dk back after it");
    excludes(has_pages(p), "page_size", "k and v of one that is trained lie in one piece");
    excludes(p.batch_invariant, "batch_invariant", "leave it out; deterministic is of bwd");
    if (p.fp32_gradients && p.alignment_bytes < size_bytes(DType::kFp32))
      reject(fmt::format("gradients=fp32 needs alignment={} to be 4 or more", p.alignment_bytes));
  } else {
    reject(fmt::format("op={} must be fwd or bwd", static_cast<int>(p.op)));
  }
}

void check_batch_invariance(const Problem& p) {
  if (p.batch_invariant && has_block_mask(p)) {
    reject(fmt::format("batch_invariant does not go with blocks={}:{}; leave one of them out",
                       p.mask_block_q, p.mask_block_kv));
  }
}

void check_pages(const Problem& p) {
  if (!has_pages(p)) return;
  if (p.lengths == Lengths::kFixed) {
    reject(
        fmt::format("page_size={} needs lengths=used, or lengths=packed for queries one after "
                    "another: of a cache in pages only the GPU knows how many keys a sequence has",
                    p.page_size));
  }
  if (p.tokens_kv != 0) {
    reject(
        fmt::format("page_size={} does not go with tokens_kv={}: pages have the keys; say "
                    "tokens_q= alone, and tokens_kv=0",
                    p.page_size, p.tokens_kv));
  }
  if (p.layout == Layout::kPackedQkv) {
    reject(fmt::format("page_size={} does not go with layout=packed_qkv: q does not lie in pages",
                       p.page_size));
  }
  if (has_block_mask(p)) {
    reject(fmt::format("page_size={} does not go with blocks={}:{}; leave one of them out",
                       p.page_size, p.mask_block_q, p.mask_block_kv));
  }
}

void check_block_mask(const Problem& p) {
  if ((p.mask_block_q == 0) != (p.mask_block_kv == 0)) {
    reject(fmt::format("mask_block_q={} and mask_block_kv={} must both be 0 or both not",
                       p.mask_block_q, p.mask_block_kv));
  }
  if (!has_block_mask(p)) {
    if (p.mask_heads != 1 || p.mask_batch != 1 || p.mask_bits || p.density != 0.0f) {
      reject(fmt::format("mask_heads={} mask_batch={}{} density={} need a block mask: blocks=64:64",
                         p.mask_heads, p.mask_batch, p.mask_bits ? " mask_bits" : "", p.density));
    }
    return;
  }
  if (p.mask_heads != 1 && p.mask_heads != p.num_heads_kv && p.mask_heads != p.num_heads_q) {
    reject(fmt::format("mask_heads={} must be 1, num_heads_kv={} or num_heads_q={}", p.mask_heads,
                       p.num_heads_kv, p.num_heads_q));
  }
  if (p.mask_batch != 1 && p.mask_batch != p.batch)
    reject(fmt::format("mask_batch={} must be 1 or batch={}", p.mask_batch, p.batch));
}

/// 1 + 2 + ... + n; 0 for n <= 0.
std::int64_t triangle(std::int64_t n) { return n <= 0 ? 0 : n * (n + 1) / 2; }

}  // namespace

bool products_within_limits(const Problem& p) {
  return p.batch * p.num_heads_q <= kMaxHeadsTotal && tokens_within_limits(p) &&
         mask_within_limits(p) && pages_within_limits(p) &&
         std::max({elements_q(p), elements_k(p), elements_v(p), elements_o(p)}) <= kMaxElements;
}

void validate(const Problem& p) {
  check_op(p);
  check_fields(p);
  check_dtype("q", p.dtype_q, p.alignment_bytes);
  check_dtype("k", p.dtype_k, p.alignment_bytes);
  check_dtype("v", p.dtype_v, p.alignment_bytes);
  check_dtype("o", p.dtype_o, p.alignment_bytes);
  if (p.num_heads_q % p.num_heads_kv != 0) {
    reject(fmt::format("num_heads_q={} must be a multiple of num_heads_kv={}", p.num_heads_q,
                       p.num_heads_kv));
  }
  if (p.causal && p.window_right > 0) {
    reject(fmt::format("window_right={} must be -1 or 0 when causal", p.window_right));
  }
  if (p.tf32 &&
      (p.dtype_q != DType::kFp32 || p.dtype_k != DType::kFp32 || p.dtype_v != DType::kFp32)) {
    reject(fmt::format("tf32 needs fp32, not q={} k={} v={}; leave it out", to_string(p.dtype_q),
                       to_string(p.dtype_k), to_string(p.dtype_v)));
  }
  check_layout(p);
  check_rope(p);
  check_lengths(p);
  check_block_mask(p);
  check_pages(p);
  check_batch_invariance(p);
  check_code(p);
  check_relations(p);
  check_products(p);
}

std::string_view to_string(Op op) {
  switch (op) {
    case Op::kForward:
      return "fwd";
    case Op::kBackward:
      return "bwd";
  }
  return "unknown";
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kFp32:
      return "fp32";
    case DType::kFp16:
      return "fp16";
    case DType::kBf16:
      return "bf16";
  }
  return "unknown";
}

std::string_view to_string(Layout layout) {
  switch (layout) {
    case Layout::kBshd:
      return "bshd";
    case Layout::kBhsd:
      return "bhsd";
    case Layout::kPackedQkv:
      return "packed_qkv";
  }
  return "unknown";
}

std::string_view to_string(Rope rope) {
  switch (rope) {
    case Rope::kNone:
      return "none";
    case Rope::kInterleaved:
      return "interleaved";
    case Rope::kHalf:
      return "half";
  }
  return "unknown";
}

std::string_view to_string(Lengths lengths) {
  switch (lengths) {
    case Lengths::kFixed:
      return "fixed";
    case Lengths::kPacked:
      return "packed";
    case Lengths::kUsed:
      return "used";
  }
  return "unknown";
}

int size_bytes(DType dtype) { return dtype == DType::kFp32 ? 4 : 2; }

Problem forward_of(const Problem& problem) {
  if (!is_backward(problem)) return problem;
  Problem forward = problem;
  forward.op = Op::kForward;
  forward.lse = true;
  forward.deterministic = forward.accumulate = forward.dlse = forward.fp32_gradients = false;
  forward.dargs.clear();
  return forward;
}

float effective_softmax_scale(const Problem& problem) {
  if (problem.softmax_scale != 0.0f) return problem.softmax_scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim)));
}

bool has_wider_gradients(const Problem& p) {
  return p.fp32_gradients &&
         (p.dtype_q != DType::kFp32 || p.dtype_k != DType::kFp32 || p.dtype_v != DType::kFp32);
}

int effective_rope_dim(const Problem& problem) {
  if (problem.rope == Rope::kNone) return 0;
  return problem.rope_dim != 0 ? problem.rope_dim : problem.head_dim;
}

double effective_density(const Problem& problem) {
  if (!has_block_mask(problem)) return 1.0;
  return problem.density != 0.0f ? double{problem.density} : kUnknownDensity;
}

MaskBlocks mask_blocks(const Problem& p) {
  if (!has_block_mask(p)) return {0, 0};
  return {.q = (p.seqlen_q + p.mask_block_q - 1) / p.mask_block_q,
          .kv = (p.seqlen_kv + p.mask_block_kv - 1) / p.mask_block_kv};
}

std::int64_t pages_of_sequence(const Problem& p) {
  return has_pages(p) ? (p.seqlen_kv + p.page_size - 1) / p.page_size : 0;
}

std::int64_t pages_of_pool(const Problem& p) {
  const std::int64_t needed = p.batch * pages_of_sequence(p);
  return needed + (needed + 3) / 4;
}

Tokens total_tokens(const Problem& p) {
  return {.q = p.tokens_q != 0 ? p.tokens_q : p.batch * p.seqlen_q,
          .kv = p.tokens_kv != 0 ? p.tokens_kv : p.batch * p.seqlen_kv};
}

Problem typical_problem(const Problem& problem) {
  if (problem.lengths == Lengths::kFixed) return problem;
  Problem typical = problem;
  typical.lengths = Lengths::kFixed;
  typical.tokens_q = typical.tokens_kv = 0;
  typical.page_size = 0;  // a cache in pages has as many bytes
  if (problem.batch == 0 || problem.lengths == Lengths::kUsed) return typical;
  // Twice the mean: most of the work is in the long ones.
  const Tokens tokens = total_tokens(problem);
  const auto twice_mean = [&](std::int64_t total, std::int64_t most) {
    return std::min(most, (2 * total + problem.batch - 1) / problem.batch);
  };
  typical.seqlen_q = twice_mean(tokens.q, problem.seqlen_q);
  typical.seqlen_kv = twice_mean(tokens.kv, problem.seqlen_kv);
  if (typical.layout == Layout::kPackedQkv) typical.layout = Layout::kBshd;
  typical.batch = std::max<std::int64_t>(
      1, (tokens.q + typical.seqlen_q / 2) / std::max<std::int64_t>(1, typical.seqlen_q));
  if (typical.mask_batch != 1) typical.mask_batch = typical.batch;
  return typical;
}

std::int64_t least_rope_offset(const Problem& problem) {
  return std::max<std::int64_t>(0, problem.seqlen_q - problem.seqlen_kv);
}

Window effective_window(const Problem& problem) {
  return {.left = problem.window_left, .right = problem.causal ? 0 : problem.window_right};
}

std::int64_t visible_pairs(const Problem& problem) {
  const std::int64_t rows = problem.seqlen_q;
  const std::int64_t keys = problem.seqlen_kv;
  const Window window = effective_window(problem);
  // Both windows contain the query's own position, so no pair is hidden on both sides: count each
  // side by itself.
  std::int64_t hidden = 0;
  if (window.right >= 0) {
    // The row that is t before the last one has t - right keys after its window, at most all.
    const std::int64_t most = rows - 1 - window.right;
    const std::int64_t partial = std::min(most, keys);
    if (most > 0) hidden += triangle(partial) + (most - partial) * keys;
  }
  if (window.left >= 0) {
    // Row i has position - left keys before its window: `most` for the last row, one less for each
    // row before it.
    const std::int64_t most = keys - 1 - window.left;
    hidden += triangle(most) - triangle(most - rows);
  }
  const std::int64_t pairs = rows * keys - hidden;
  if (!has_block_mask(problem)) return pairs;
  return std::llround(static_cast<double>(pairs) * effective_density(problem));
}

double flops(const Problem& problem) {
  const Problem p = typical_problem(problem);
  const double of_pair = (is_backward(p) ? 2.5 : 1.0) * 2.0 * (p.head_dim + p.head_dim_v);
  return of_pair * static_cast<double>(visible_pairs(p)) *
         static_cast<double>(p.batch * p.num_heads_q);
}

namespace {

/// Of what backward reads beside q, k, v and o, and of what it writes.
double gradient_bytes(const Problem& p) {
  const auto moved = [&](double elements, DType input) {
    return (p.accumulate ? 2.0 : 1.0) * elements * size_bytes(gradient_dtype(p, input));
  };
  const double rows = static_cast<double>(p.num_heads_q) * static_cast<double>(total_tokens(p).q);
  return elements_o(p) * size_bytes(p.dtype_o) + rows * (p.dlse ? 8.0 : 4.0) +
         moved(elements_q(p), p.dtype_q) + moved(elements_k(p), p.dtype_k) +
         moved(elements_v(p), p.dtype_v);
}

}  // namespace

double minimum_bytes(const Problem& p) {
  const double lse_bytes = p.lse ? 4.0 * static_cast<double>(p.num_heads_q * total_tokens(p).q)
                                 : 0.0;
  const double table_bytes = 4.0 * effective_rope_dim(p) *
                             static_cast<double>(std::max(p.seqlen_q, p.seqlen_kv));
  // The beginning of each row of blocks, and an entry for each block that is present.
  const double mask_bytes = 4.0 * mask_rows(p) *
                            (1.0 + static_cast<double>(mask_blocks(p).kv) * effective_density(p));
  return mask_bytes + table_bytes + elements_q(p) * size_bytes(p.dtype_q) +
         elements_k(p) * size_bytes(p.dtype_k) + elements_v(p) * size_bytes(p.dtype_v) +
         elements_o(p) * size_bytes(p.dtype_o) + lse_bytes +
         (is_backward(p) ? gradient_bytes(p) : 0.0);
}

}  // namespace attnforge
