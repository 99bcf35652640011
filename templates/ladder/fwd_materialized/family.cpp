// family.cpp - fwd_materialized as a Family: what it serves, its search space, source and launches.
#include <algorithm>

#include <fmt/format.h>
#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/embedded.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/memory_time.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"
#include "templates/ladder/fwd_materialized/config.h"

namespace attnforge {
namespace {

using Typed = FwdMaterializedConfig;
constexpr std::string_view kName = "fwd_materialized";

constexpr Field<Typed> kFields[] = {
    {"block_m", &Typed::block_m, doubled(64, 256)},
    {"block_n", &Typed::block_n, from_to(64, 256, 64)},
    {"num_warps", &Typed::num_warps, doubled(2, 8)},
    {"stages", &Typed::stages, from_to(1, 4)},
    {"softmax_threads", &Typed::softmax_threads, from_to(32, 1024, 32)},
};

constexpr int kSmallestTile = 64;
constexpr double kMostOfMemory = 0.9;  // of the GPU's, for tensors and workspace
constexpr double kGiB = 1 << 30;

std::int64_t rows(const Problem& problem) {
  return problem.batch * problem.num_heads_q * problem.seqlen_q;
}
std::int64_t pitch(const Problem& problem, const Typed& c) {
  return (problem.seqlen_kv + c.block_n - 1) / c.block_n * c.block_n;
}
std::size_t workspace_bytes(const Problem& problem, const Typed& c) {
  // As a double it does not overflow; past 2^63 no GPU has the memory, and illegal() says so.
  const double bytes = double(rows(problem)) * (double(pitch(problem, c)) + 1) * sizeof(float);
  return bytes > 9e18
             ? std::size_t(9e18)
             : std::size_t(rows(problem)) * std::size_t(pitch(problem, c) + 1) * sizeof(float);
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = without_cp_async(arch)) return no.text();
  if (Reason no = below_alignment(problem, 4)) return no.text();
  const std::int64_t key_tiles = (problem.seqlen_kv + kSmallestTile - 1) / kSmallestTile;
  const double tiles = double(query_tiles(problem, kSmallestTile)) * double(key_tiles);
  return too_many_blocks(std::max(tiles, double(rows(problem)))).text();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& /*device*/) {
  const bool fp32 = problem.dtype_q == DType::kFp32;
  return {
      {"block_m", {128, 64}},
      {"block_n", {128, 64}},
      {"num_warps", {8, 4}},
      {"stages", fp32 ? std::vector<int>{1} : std::vector<int>{2, 3, 1}},
      {"softmax_threads", {256, 128}},
  };
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (c.tensor_cores()) {
    if (Reason wrong = uneven_rows(c.block_m, c.num_warps)) return wrong;
  }
  if (Reason wrong = invalid(c)) return wrong;
  const int smem_bytes = std::max(c.scores_smem_bytes(), c.output_smem_bytes());
  if (Reason wrong = too_much_smem(smem_bytes, arch)) return wrong;
  const double workspace = double(workspace_bytes(problem, c));
  if (workspace + minimum_bytes(problem) > kMostOfMemory * double(device.memory_bytes)) {
    return fmt::format(
        "the scores of all heads take {:.1f} GiB of workspace, beside {:.1f} GiB of tensors; {} "
        "has {:.1f} GiB. Choose a family whose name begins with fwd_flash, or any other: they keep "
        "no scores",
        workspace / kGiB, minimum_bytes(problem) / kGiB, device.name,
        double(device.memory_bytes) / kGiB);
  }
  return "";
}

Reason needless(const Typed& c, const Problem&, const DeviceFacts&) {
  if (c.accumulators() <= (c.tensor_cores() ? 128 : 64)) return "";
  return Reason("{} accumulators per thread leave no registers", c.accumulators());
}

/// The steps one after another: a product takes as long as its multiply-adds or as its scores take
/// through memory, the softmax as long as it reads and writes. Constants are measured on an H200.
double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kBandwidth = 0.75, kTensor = 0.36, kFma = 0.4, kLaunchUs = 3;
  constexpr double kRowsPerUsPerSm = 8;  // of the softmax, however short they are
  if (problem.seqlen_q == 0 || problem.batch == 0) return 0;
  const double heads = double(problem.batch) * double(problem.num_heads_q);
  const double tiles = visited_keys(problem, c.block_m, 1, c.block_n).all * heads;
  const double scores = tiles * c.block_m * c.block_n;
  const double bytes_per_us = peak_bytes_per_us(device) * kBandwidth;
  const double written_us = scores * 4 / bytes_per_us,
               p_us = scores * element_bytes(c.dtype) / bytes_per_us;

  const double per_clock = c.tensor_cores() ? kTensor * device.arch.mma_fma_per_clock_per_sm
                                            : kFma * 128;
  const bool few_rows = c.tensor_cores() && c.block_m / c.num_warps < 32;  // that share a load of B
  const double slower = (few_rows ? 1.2 : 1.0) *
                        (c.stages == 1   ? 1.3
                         : c.stages == 2 ? 1.02
                                         : 1) *
                        (c.block_m == 128 ? 1.0 : 1.1) * (c.block_n == 128 ? 1.0 : 1.05) *
                        idle_factor(double(query_tiles(problem, c.block_m)), device.num_sms);
  const double fma_us = slower / (per_clock * device.num_sms * device.sm_clock_mhz);
  const double columns = ceil_div(c.head_dim_v, c.block_v()) * c.block_v();
  const double per_row = c.softmax_threads == 256 ? 1.0 : 3.0;
  return 3 * kLaunchUs + std::max(written_us, scores * round_up(c.head_dim, 16) * fma_us) +
         (written_us + p_us + per_row * double(rows(problem)) / device.num_sms / kRowsPerUsPerSm) +
         std::max(p_us, scores * columns * fma_us);
}

// The steps: the name that ends a kernel's symbol is that of the function it calls.
constexpr std::string_view kScores = "scores", kSoftmax = "softmax", kOutput = "output";

std::string symbol(const Typed& c, std::string_view step) {
  return fmt::format("{}_{}", shape_name(kName, c, c.block_m, c.block_n), step);
}

Source render(const Typed& c, const Problem&) {
  const Config config = untyped(kName, c, kFields);
  Source source;
  source.name = symbol(c, kScores);
  source.entry = fmt::format(R"(// generated: {}
#include "ladder/fwd_materialized/kernel.cuh"
using namespace attnforge;
static_assert(sizeof(FwdMaterializedParams) == {});
inline constexpr FwdMaterializedConfig kConfig{};
)",
                             to_string(config), sizeof(FwdMaterializedParams),
                             initializer(config, c));
  for (const std::string_view step : {kScores, kSoftmax, kOutput}) {
    source.entry += fmt::format(
        R"(extern "C" __global__ void __launch_bounds__({})
{}(const __grid_constant__ FwdMaterializedParams p) {{
  FwdMaterialized<kConfig>::{}(p);
}}
)",
        step == kSoftmax ? "kConfig.softmax_threads"
                         : "kConfig.num_threads(), kConfig.blocks_per_sm()",
        symbol(c, step), step);
  }
  flatten(source, embedded_headers());
  return source;
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts&) {
  Launch result;
  if (rows(problem) == 0) return result;
  const i64 row_pitch = pitch(problem, c);
  result.workspace_bytes = workspace_bytes(problem, c);
  const std::size_t scores_bytes = std::size_t(rows(problem)) * std::size_t(row_pitch) *
                                   sizeof(float);

  const auto add = [&](std::string_view name, std::int64_t blocks, int threads, int smem_bytes) {
    if (blocks == 0) return;  // no keys: no scores
    // More are needed only when the bound of a workspace is computed, not to be launched.
    LaunchStep step = step_of(symbol(c, name), threads, smem_bytes, std::min(blocks, kMaxGridX));
    Argument argument = Argument::of<FwdMaterializedParams>(step);
    argument.fwd(problem).scratch(0).scratch(scores_bytes).value(row_pitch).done();
    result.steps.push_back(std::move(step));
  };
  const std::int64_t tiles = query_tiles(problem, c.block_m);
  add(kScores, tiles * (row_pitch / c.block_n), c.num_threads(), c.scores_smem_bytes());
  add(kSoftmax, rows(problem), c.softmax_threads, 0);
  add(kOutput, tiles * ceil_div(c.head_dim_v, c.block_v()), c.num_threads(), c.output_smem_bytes());
  return result;
}

}  // namespace

extern const Family fwd_materialized;
constinit const Family
    fwd_materialized = typed_family<kFields, illegal, needless, estimate_us, render, launch>({
        .name = kName,
        .summary =
            "scores, softmax and output one after another, with all scores in memory: the O(L^2) "
            "baseline",
        .tier = Tier::kLadder,
        .only_named = true,
        .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                    kFeatureUnequalHeadDims | kFeatureUnaligned,
        .supports = supports,
        .axes = axes,
    });

}  // namespace attnforge
