// problem.cpp - what makes a problem valid, and what follows from its sizes.
#include "attnforge/problem.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "attnforge/error.h"
#include "generator/parts/part.h"
#include "generator/problem/fields.h"
#include "generator/tensors/tensor_elements.h"
#include "generator/user_code/mask_windows.h"

namespace attnforge {
namespace {

constexpr std::int64_t kMaxHeadsTotal = 2147483647;

void check_dtypes(const Problem& p) {
  for (const auto& [name, dtype] :
       {std::pair("q", p.dtype_q), {"k", p.dtype_k}, {"v", p.dtype_v}, {"o", p.dtype_o}}) {
    if (p.alignment_bytes < bytes_of(dtype, 1))
      reject_problem("alignment={} must be at least the {} bytes of an element of {}={}",
                     p.alignment_bytes, bytes_of(dtype, 1), name, to_string(dtype));
  }
}

/// "" or why products of sizes are too large.
std::string too_large(const Problem& p) {
  for (const ProblemPart* part : problem_parts()) {
    if (part->too_large == nullptr || !part->in(p)) continue;
    if (std::string why = part->too_large(p); !why.empty()) return why;
  }
  if (p.batch * p.num_heads_q > kMaxHeadsTotal)
    return fmt::format("batch={} times num_heads_q={} must be at most {}", p.batch, p.num_heads_q,
                       kMaxHeadsTotal);
  const Tokens tokens = total_tokens(p);
  const int head_dim = std::max(p.head_dim, p.head_dim_v);
  if (elements(tokens.q, p.num_heads_q, head_dim) <= kMostElements &&
      elements(tokens.kv, p.num_heads_kv, head_dim) <= kMostElements)
    return "";
  return fmt::format(
      "batch={} num_heads_q={} num_heads_kv={} seqlen_q={} seqlen_kv={} head_dim={} head_dim_v={} "
      "make a tensor of more than 2^48 elements",
      p.batch, p.num_heads_q, p.num_heads_kv, p.seqlen_q, p.seqlen_kv, p.head_dim, p.head_dim_v);
}

void check_layout(const Problem& p) {
  if (p.layout != Layout::kPackedQkv) return;
  if (p.seqlen_q != p.seqlen_kv) {
    reject_problem("layout=packed_qkv needs seqlen_q={} and seqlen_kv={} to be equal", p.seqlen_q,
                   p.seqlen_kv);
  }
  if (p.head_dim != p.head_dim_v) {
    reject_problem("layout=packed_qkv needs head_dim={} and head_dim_v={} to be equal", p.head_dim,
                   p.head_dim_v);
  }
  if (p.dtype_q != p.dtype_k || p.dtype_q != p.dtype_v) {
    reject_problem("layout=packed_qkv needs one dtype, not q={} k={} v={}", to_string(p.dtype_q),
                   to_string(p.dtype_k), to_string(p.dtype_v));
  }
}

/// 1 + 2 + ... + n; 0 for n <= 0.
std::int64_t triangle(std::int64_t n) { return n <= 0 ? 0 : n * (n + 1) / 2; }

/// Pairs of a row and a key that is at most `distance` after it.
std::int64_t pairs_up_to(std::int64_t rows, std::int64_t keys, std::int64_t distance) {
  const std::int64_t d = std::clamp(distance, -rows, keys);  // more changes nothing
  return triangle(rows + d) - triangle(d) - triangle(rows + d - keys) + triangle(d - keys);
}

}  // namespace

bool products_within_limits(const Problem& p) { return too_large(p).empty(); }

void validate(const Problem& p) {
  check_exclusions(p);
  check_fields(p);
  check_dtypes(p);
  if (is_attention(p) && p.num_heads_q % p.num_heads_kv != 0) {
    reject_problem("num_heads_q={} must be a multiple of num_heads_kv={}", p.num_heads_q,
                   p.num_heads_kv);
  }
  if (p.causal && p.window_right > 0) {
    reject_problem("window_right={} must be -1 or 0 when causal", p.window_right);
  }
  if (p.tf32 &&
      (p.dtype_q != DType::kFp32 || p.dtype_k != DType::kFp32 || p.dtype_v != DType::kFp32)) {
    reject_problem("tf32 needs fp32, not q={} k={} v={}; leave it out", to_string(p.dtype_q),
                   to_string(p.dtype_k), to_string(p.dtype_v));
  }
  check_layout(p);
  for (const ProblemPart* part : problem_parts()) {
    if (part->validate != nullptr) part->validate(p);
  }
  check_relations(p);
  if (const std::string why = too_large(p); !why.empty()) reject_problem("{}", why);
}

float effective_softmax_scale(const Problem& problem) {
  if (problem.softmax_scale != 0.0f) return problem.softmax_scale;
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.head_dim)));
}

std::int64_t visible_pairs(const Problem& problem) {
  if (!is_attention(problem)) return problem.seqlen_q * problem.parts;
  const std::int64_t rows = problem.seqlen_q, keys = problem.seqlen_kv;
  const KeyBounds bounds = key_bounds(problem);
  const std::int64_t offset = keys - rows;  // of a query's position
  std::int64_t pairs = rows * keys;
  if (bounds.right) pairs = pairs_up_to(rows, keys, offset + *bounds.right);
  // Bounds of a text may leave nothing between them.
  if (bounds.left)
    pairs = std::max<std::int64_t>(0, pairs - pairs_up_to(rows, keys, offset - *bounds.left - 1));
  const double share = effective_density(problem);
  return share == 1.0 ? pairs : std::llround(static_cast<double>(pairs) * share);
}

double flops_of_pairs(const Problem& problem, double pairs) {
  double of_pair = 2.0 * (problem.head_dim + problem.head_dim_v);
  for (const ProblemPart* part : problem_parts()) of_pair *= part->in(problem) ? part->work : 1.0;
  return of_pair * pairs;
}

double flops(const Problem& problem) {
  const Problem p = typical_problem(problem);
  return flops_of_pairs(
      p, static_cast<double>(visible_pairs(p)) * static_cast<double>(p.batch * p.num_heads_q));
}

Problem typical_problem(const Problem& problem) {
  Problem typical = problem;
  for_each_part<&ProblemPart::make_typical>(problem, problem, typical);
  return typical;
}

double minimum_bytes(const Problem& p) {
  const double lse_bytes = p.lse ? 4.0 * static_cast<double>(p.num_heads_q * total_tokens(p).q)
                                 : 0.0;
  double bytes = p.op == Op::kAppend ? 0 : bytes_of(p.dtype_o, elements_o(p)) + lse_bytes;
  if (is_attention(p))
    bytes += bytes_of(p.dtype_q, elements_q(p)) + bytes_of(p.dtype_k, elements_k(p)) +
             bytes_of(p.dtype_v, elements_v(p));
  for (const ProblemPart* part : problem_parts()) {
    if (part->bytes != nullptr && part->in(p)) bytes += part->bytes(p);
  }
  return bytes;
}

}  // namespace attnforge
