#include "templates/host/fwd_params.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <string_view>
#include <utility>

#include "attnforge/error.h"
#include "generator/problem/fields.h"
#include "generator/user_code/mask_windows.h"
#include "templates/host/tile_order.h"

namespace attnforge {
namespace {

int window_bound(std::optional<std::int64_t> bound) {
  constexpr std::int64_t kMost = kOpenWindow;
  return static_cast<int>(std::clamp(bound.value_or(kMost), -kMost, kMost));
}

}  // namespace

FwdParams fwd_params(const Problem& problem) {
  const KeyBounds bounds = key_bounds(problem);
  FwdParams params{};
  params.batch = static_cast<int>(problem.batch);
  params.num_heads_q = static_cast<int>(problem.num_heads_q);
  params.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  params.seqlen_q = static_cast<int>(problem.seqlen_q);
  params.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  params.window_left = window_bound(bounds.left);
  params.window_right = window_bound(bounds.right);
  params.softmax_scale = effective_softmax_scale(problem);
  const float softcap = effective_softcap(problem);
  params.softcap_to_x = softcap == 0.0f ? 0.0f : effective_softmax_scale(problem) / softcap;
  return params;
}

int gqa_group(const Problem& problem) {
  return static_cast<int>(problem.num_heads_q / problem.num_heads_kv);
}

std::string shape_name(std::string_view family, const Shape& shape, int block_m, int block_n) {
  // Each plan for a new length needs it: of strings it would be a tenth of what that costs, by
  // fmt a quarter.
  std::array<char, 96> name;
  char* end = name.data();
  const auto add = [&](std::string_view text) { end = std::ranges::copy(text, end).out; };
  const auto add_number = [&](int number) { end = std::to_chars(end, &name.back(), number).ptr; };
  ATTNFORGE_ASSERT(family.size() <= 32, "it leaves room for four numbers");
  add(family), add("_"), add(to_string(static_cast<DType>(shape.dtype)));
  add("_d"), add_number(shape.head_dim);
  if (shape.head_dim_v != shape.head_dim) add("v"), add_number(shape.head_dim_v);
  add("_"), add_number(block_m), add("x"), add_number(block_n);
  return {name.data(), end};
}

std::int64_t query_tiles(const Problem& problem, int block_m, int pack_gqa) {
  return query_tiles_of_head(problem, block_m, pack_gqa) * (problem.num_heads_q / pack_gqa);
}

LaunchStep step_of(std::string symbol, int num_threads, int smem_bytes, std::int64_t blocks) {
  LaunchStep step;
  step.kernel = std::move(symbol);
  step.grid.x = static_cast<unsigned>(blocks);
  step.block.x = static_cast<unsigned>(num_threads);
  step.smem_bytes = smem_bytes;
  return step;
}

Launch launch_of_tiles(const Problem& problem, const TileOrder& order, LaunchStep step) {
  const std::int64_t blocks = std::int64_t{order.heads} * order.m_blocks;
  Launch result;
  if (blocks == 0) return result;
  ATTNFORGE_ASSERT(blocks <= kMaxGridX, "supports() lets no larger grid through");
  step.grid.x = static_cast<unsigned>(blocks);
  Argument::of<FwdTiledParams>(step).fwd(problem).value(order).done();
  result.steps.push_back(std::move(step));
  return result;
}

}  // namespace attnforge
