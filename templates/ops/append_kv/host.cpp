#include "templates/ops/append_kv/host.h"

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
      "#include \"ops/append_kv/kernel.cuh\"\n"
      "using namespace attnforge;\n"
      "static_assert(sizeof(AppendParams) == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({}, {})\n"
      "{}(const __grid_constant__ AppendParams p) {{\n"
      "  AppendKv<AppendShape{{.dtype = {}, .head_dim = {}, .head_dim_v = {}, .rope = {}, "
      ".rope_dim = {}}}, {}>::run(p);\n"
      "}}\n",
      s.head_dim, s.head_dim_v, sizeof(AppendParams), AppendShape::kMostThreads, s.blocks_of_sm(),
      kAppendKernel, s.dtype, s.head_dim, s.head_dim_v, s.rope, s.rope_dim, code.alignment);
  flatten(source, embedded_headers());
  return source;
}

LaunchStep append_step(bool counts) {
  LaunchStep step = step_of(kAppendKernel,
                            counts ? AppendShape::kMostThreads : AppendShape::kThreads, 0);
  step.params.assign(sizeof(AppendParams), std::byte{0});
  return step;
}

AppendWork append_work(const AppendShape& shape, std::int64_t tokens, int heads_kv, int heads_q,
                       int num_sms) {
  const std::int64_t warps_at_once = std::int64_t{std::max(num_sms, 1)} * shape.blocks_of_sm()
                                     << AppendShape::kWarpsLog2;
  AppendWork work{};
  for (;; ++work.depth_log2) {
    int end = 0;
    for (const int moved : {kMovedK, kMovedV, kMovedQ}) {
      end += shape.strips(moved, moved == kMovedQ ? heads_q : heads_kv, work.depth_log2);
      work.strips_end[moved] = end;
    }
    const bool at_once = end <= 1 << AppendShape::kWarpsLog2 && tokens * end <= warps_at_once;
    if (at_once || work.depth_log2 == shape.most_depth_log2()) break;
  }
  // A GPU that is filled once and a bit would be nearly empty at the end: it had better be filled
  // several times, with less work each.
  const auto more_help = [&](std::int64_t warps) {
    return 2 * warps <= warps_at_once || (warps > warps_at_once && warps < 4 * warps_at_once);
  };
  while (work.warps_log2 < AppendShape::kWarpsLog2 &&
         1 << work.warps_log2 < work.strips_end[kMovedQ] && more_help(tokens << work.warps_log2))
    ++work.warps_log2;
  work.blocks = static_cast<u32>(
      std::max<std::int64_t>(1, (tokens + work.tokens_of_block() - 1) / work.tokens_of_block()));
  return work;
}

bool counts_blocks(const AppendParams& p) {
  if (p.used_after == nullptr) return false;
  if (p.cu_seqlens != nullptr || p.tokens == 0) return true;  // packed rows have no seqlen_new
  const bool reads_what_it_writes = p.used == p.used_after;
  return reads_what_it_writes && p.work.tokens_of_block() % p.seqlen_new != 0;
}

unsigned append_grid(std::uint32_t blocks) { return std::min(blocks, 8192u); }

}  // namespace attnforge
