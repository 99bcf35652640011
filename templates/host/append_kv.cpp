#include "templates/host/append_kv.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "templates/embedded.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

constexpr const char* kAppendKernel = "append_kv";

static_assert(sizeof(AppendCounters) == kCounterBytes &&
              offsetof(AppendCounters, runs) == kRunsCounter * sizeof(u32));

}  // namespace

Source append_source(const AppendCode& code) {
  const AppendShape& s = code.shape;
  Source source;
  source.name = kAppendKernel;
  source.entry = fmt::format(
      "// generated: appends rows of head dims {} and {} to caches\n"
      "#include \"steps/append_kv/kernel.cuh\"\n"
      "using namespace attnforge;\n"
      "static_assert(sizeof(AppendParams) == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ AppendParams p) {{\n"
      "  AppendKv<AppendShape{{.dtype = {}, .head_dim = {}, .head_dim_v = {}, .rope = {}, "
      ".rope_dim = {}}}, {}>::run(p);\n"
      "}}\n",
      s.head_dim, s.head_dim_v, sizeof(AppendParams), AppendShape::kThreads, kAppendKernel, s.dtype,
      s.head_dim, s.head_dim_v, s.rope, s.rope_dim, code.alignment);
  flatten(source, embedded_headers());
  return source;
}

LaunchStep append_step() {
  LaunchStep step = step_of(kAppendKernel, AppendShape::kThreads, 0);
  step.params.assign(sizeof(AppendParams), std::byte{0});
  return step;
}

std::uint32_t append_blocks(const AppendShape& shape, std::int64_t tokens, std::int64_t heads_kv,
                            std::int64_t heads_q) {
  constexpr std::int64_t kMostHeads = 1 << 16, kMostWarps = std::int64_t{1} << 31;
  if (heads_kv > kMostHeads || heads_q > kMostHeads || tokens > kMostWarps) return 0;
  const int warps = shape.warps_of_token(static_cast<int>(heads_kv), static_cast<int>(heads_q));
  if (tokens * warps > kMostWarps) return 0;
  constexpr int kWarps = AppendShape::kThreads / 32;
  return static_cast<std::uint32_t>(
      std::max<std::int64_t>(1, (tokens * warps + kWarps - 1) / kWarps));
}

unsigned append_grid(std::uint32_t blocks) { return std::min(blocks, 8192u); }

}  // namespace attnforge
