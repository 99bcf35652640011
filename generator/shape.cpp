#include "generator/shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <string>
#include <vector>

#include "generator/problem/fields.h"
#include "generator/user_code/mask_windows.h"
#include "generator/user_code/read_once.h"
#include "generator/user_code/user_code.h"

namespace attnforge {
namespace {

struct ShapeField {
  std::string_view name;
  int Shape::*member;
};

constexpr ShapeField kMembers[] = {
    {"dtype", &Shape::dtype},
    {"dtype_k", &Shape::dtype_k},
    {"dtype_v", &Shape::dtype_v},
    {"dtype_o", &Shape::dtype_o},
    {"head_dim", &Shape::head_dim},
    {"head_dim_v", &Shape::head_dim_v},
    {"right_bound", &Shape::right_bound},
    {"left_bound", &Shape::left_bound},
    {"softcap", &Shape::softcap},
    {"lse", &Shape::lse},
    {"alignment", &Shape::alignment},
    {"rope", &Shape::rope},
    {"rope_dim", &Shape::rope_dim},
    {"lengths", &Shape::lengths},
    {"mask_block_q", &Shape::mask_block_q},
    {"mask_block_kv", &Shape::mask_block_kv},
    {"mask_bits", &Shape::mask_bits},
    {"user_score", &Shape::user_score},
    {"user_mask", &Shape::user_mask},
    {"text_bits", &Shape::text_bits},
    {"sinks", &Shape::sinks},
    {"page_size", &Shape::page_size},
    {"accumulate", &Shape::accumulate},
    {"fp32_gradients", &Shape::fp32_gradients},
    {"dargs", &Shape::dargs},
    {"kv_scale", &Shape::kv_scale},
    {"row_bytes", &Shape::row_bytes},
    {"fast_sums", &Shape::fast_sums},
    {"kv_zero", &Shape::kv_zero},
};
static_assert(std::size(kMembers) * sizeof(int) == sizeof(Shape), "every member is listed");

int row_bytes(const std::string& args) {
  const std::vector<CodeArgument> arguments = code_arguments(args);
  const std::size_t aligned = place_of_aligned(arguments);
  return aligned == arguments.size() ? 0 : size_bytes(arguments[aligned].type);
}

/// Whether a mask text's bits for all pairs take less memory than a run may need, and so do
/// those of all problems in its bucket.
bool text_bits_fit(const Problem& p) {
  constexpr std::int64_t kMostBytes = std::int64_t{256} << 20, kMostSeqlen = 1 << 24;
  if (p.seqlen_q > kMostSeqlen || p.seqlen_kv > kMostSeqlen) return false;
  const auto ceil = [](std::int64_t x) { return double(std::bit_ceil(std::uint64_t(x))); };
  const bool of_batch = !has_fixed_lengths(p) || mask_depends_on(p, "batch");
  const double heads = mask_depends_on(p, "head") ? double(p.num_heads_q) : 1.0;
  return ceil(p.seqlen_q) * ceil(p.seqlen_kv) / 8 * heads * (of_batch ? ceil(p.batch) : 1.0) <=
         kMostBytes;
}

}  // namespace

Shape shape_of(const Problem& problem) {
  const MaskTerms terms_of_mask = mask_terms(problem);
  const bool has_mask_code = !terms_of_mask.code.empty();
  return {.dtype = static_cast<int>(problem.dtype_q),
          .dtype_k = static_cast<int>(problem.dtype_k),
          .dtype_v = static_cast<int>(problem.dtype_v),
          .dtype_o = static_cast<int>(problem.dtype_o),
          .head_dim = problem.head_dim,
          .head_dim_v = problem.head_dim_v,
          .right_bound = terms_of_mask.bounds.right.has_value(),
          .left_bound = terms_of_mask.bounds.left.has_value(),
          .softcap = effective_softcap(problem) > 0,
          .lse = problem.lse,
          .alignment = problem.alignment_bytes,
          .rope = static_cast<int>(problem.rope),
          .rope_dim = effective_rope_dim(problem),
          .lengths = static_cast<int>(problem.lengths),
          .mask_block_q = problem.mask_block_q,
          .mask_block_kv = problem.mask_block_kv,
          .mask_bits = problem.mask_bits,
          .user_score = has_score_code(problem),
          .user_mask = !has_mask_code         ? 0
                       : problem.args.empty() ? 1
                                              : 2,
          .text_bits = has_mask_code && !has_block_mask(problem) && text_bits_fit(problem),
          .sinks = problem.sinks,
          .page_size = problem.page_size,
          .accumulate = problem.accumulate,
          .fp32_gradients = has_wider_gradients(problem),
          .dargs = writes_dargs(problem) ? 2 : !problem.dargs.empty(),
          .kv_scale = static_cast<int>(problem.kv_scale),
          .row_bytes = problem.args.empty() ? 0 : read_once<row_bytes>(problem.args),
          .fast_sums = problem.fast_sums,
          .kv_zero = problem.kv_zero};
}

bool has_window(const Shape& shape) { return shape.right_bound || shape.left_bound; }
bool looks_keys_up(const Shape& shape) { return shape.page_size != 0; }
bool later_see_more(const Shape& shape) { return shape.right_bound != 0; }
bool see_ever_more(const Shape& shape) { return later_see_more(shape) && shape.left_bound == 0; }

Shape without_bounds(Shape shape) {
  shape.right_bound = shape.left_bound = 0;
  return shape;
}

bool has_fixed_lengths(const Problem& problem) { return problem.lengths == Lengths{}; }

float effective_softcap(const Problem& problem) {
  return problem.softcap != 0.0f || problem.score.empty() ? problem.softcap : cap_of(problem.score);
}

bool has_score_code(const Problem& problem) {
  return !problem.score.empty() && (problem.softcap != 0.0f || cap_of(problem.score) == 0.0f);
}

bool operator==(const Shape& a, const Shape& b) {
  return std::ranges::all_of(
      kMembers, [&](const ShapeField& field) { return a.*field.member == b.*field.member; });
}

std::string initializer(const Shape& shape) {
  std::string text;
  bool is_optional = false;
  for (const auto& [name, member] : kMembers) {
    // The text of a kernel without an optional part does not know of it: its digest stays when one
    // is invented.
    if (is_optional && shape.*member == 0) continue;
    is_optional |= member == &Shape::rope_dim;
    text += fmt::format("{}.{} = {}", text.empty() ? "{" : ", ", name, shape.*member);
  }
  return text + "}";
}

}  // namespace attnforge
