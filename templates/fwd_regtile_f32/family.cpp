// family.cpp - fwd_regtile_f32 as a Family: what it serves, its search space, source and launch.
#include <algorithm>
#include <cmath>
#include <cstdint>

#include "generator/arch.h"
#include "generator/family.h"
#include "generator/typed_family.h"
#include "templates/fwd_regtile_f32/config.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

using Typed = FwdRegtileF32Config;
constexpr std::string_view kName = "fwd_regtile_f32";

constexpr Field<Typed> kFields[] = {
    {"math", &Typed::math, from_to(kMathFma, kMathTf32)},
    {"warp_m", &Typed::warp_m, doubled(8, 64)},
    {"warps_m", &Typed::warps_m, doubled(1, 8)},
    {"warps_n", &Typed::warps_n, doubled(1, 8)},
    {"warps_d", &Typed::warps_d, doubled(1, 4)},
    {"step_n", &Typed::step_n, from_to(16, 128, 16)},
    {"steps", &Typed::steps, from_to(1, 8)},
    {"stages", &Typed::stages, from_to(1, 4)},
    {"q_in_regs", &Typed::q_in_regs, kFlag},
    {"blocks_per_sm", &Typed::blocks_per_sm, from_to(1, 16)},
    {"pack_gqa", &Typed::pack_gqa, kPackedHeads},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
};

/// Registers in addition to the planned ones that ptxas needs for addresses and operands. Fewer,
/// and it spills.
constexpr int kRegisterSlack = 20;
constexpr int kLookUpSlack = 12;  // where keys lie
constexpr int kSmallestBlockM = 8;

/// Single tiles of K and V pay only where two do not fit.
bool memory_is_scarce(const Typed& c, const Arch& arch) {
  const int double_buffered = 64 * c.qk_chunks() * 16 +
                              2 * 32 * (c.qk_chunks() + c.v_chunks()) * 16;
  return 2 * double_buffered > arch.smem_per_sm_bytes;
}

/// Whether there are enough query tiles of 64 rows for all SMs.
bool queries_fill_the_gpu(const Problem& problem, const DeviceFacts& device) {
  return problem.seqlen_q >= kLongQuery &&
         (problem.seqlen_q + 63) / 64 * problem.batch * problem.num_heads_q >=
             std::int64_t{2} * device.num_sms;
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = without_cp_async(arch)) return no.text();
  if (problem.dtype_q != DType::kFp32) return "takes fp32";
  return too_many_query_tiles(problem, kSmallestBlockM).text();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  const bool large_out = problem.head_dim_v > 128;
  std::vector<int> splits_of_keys = {1};
  if (!queries_fill_the_gpu(problem, device)) splits_of_keys = {1, 2, 4, 8};
  std::vector<int> packs = {1};
  if (gqa_group(problem) > 1) packs.push_back(gqa_group(problem));
  return {
      {"math", {problem.tf32 ? kMathTf32 : kMath3xTf32, kMathFma}},
      {"warp_m", {16, 32, 64, 8}},
      {"warps_m", {4, 8, 2, 1}},
      {"warps_n", splits_of_keys},
      {"warps_d", large_out ? std::vector{1, 2, 4} : std::vector{1}},
      {"step_n", {32, 16, 64}},
      {"steps", {1, 2, 4}},
      {"stages", {2, 3, 1}},
      {"q_in_regs", problem.head_dim <= 128 ? std::vector{0, 1} : std::vector{0}},
      {"blocks_per_sm", {2, 3, 4, 1}},
      {"pack_gqa", packs},
      {"head_group_mb", head_groups_mb(problem, device)},
  };
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (Reason wrong = wrong_pack(problem, c.pack_gqa)) return wrong;
  const Arch& arch = device.arch;
  if (c.math == kMathTf32 && !problem.tf32) return "the problem does not allow TF32";
  if (c.num_warps() < 2 || c.num_warps() > 16) return "not from 2 to 16 warps";
  if (Reason wrong = uneven_pack(c.block_m(), c.pack_gqa)) return wrong;
  if (Reason wrong = one_stage_of_steps(c.stages, c.steps)) return wrong;
  if (c.q_in_regs && c.math == kMathFma) return "outer products read Q from shared memory";
  if (Reason wrong = invalid(c)) return wrong;
  if (Reason wrong = too_much_smem(c.smem_bytes(), arch)) return wrong;
  if (Reason wrong = in_many_pages(c, c.block_n())) return wrong;
  return no_room(c, arch);
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  const std::int64_t rows = problem.seqlen_q * c.pack_gqa;
  if (Reason waste = half_empty_queries(c.block_m(), c.warp_m, rows)) return waste;
  if (Reason waste = half_empty_keys(c.block_n(), 32, problem)) return waste;
  if (c.block_n() > 128 && c.steps > 1) return "more than 128 keys per tile only delay the start";
  if (Reason waste = few_registers(c, arch, kRegisterSlack)) return waste;
  if (c.stages == 1 && !memory_is_scarce(c, arch)) return "one stage: there is memory for more";
  const std::int64_t tiles = query_tiles(problem, c.block_m(), c.pack_gqa);
  const bool has_more = tiles > std::int64_t{c.blocks_per_sm} * device.num_sms;
  if (has_more) {
    if (Reason waste = room_for_more_blocks(c, arch, kRegisterSlack)) return waste;
  }
  if (!has_more && c.blocks_per_sm > 1 &&
      tiles <= std::int64_t{c.blocks_per_sm - 1} * device.num_sms)
    return "too few tiles for that many blocks per SM";
  if (!memory_is_scarce(c, arch)) {
    if (Reason waste = few_warps(c.blocks_per_sm, c.num_warps())) return waste;
  }
  if (c.warps_d > 1 && c.warp_columns() < 64) return "fewer than 64 columns per warp";
  if (Reason waste = needless_pack(problem, c.pack_gqa)) return waste;
  return "";
}

/// Whether ptxas may spill a few registers: fitted to what it did for 175 configs on sm_90.
bool registers_are_tight(const Typed& c, const Arch& arch) {
  const int available = registers_available(c, arch);
  if (c.math != kMath3xTf32) return c.planned_registers() + 40 > available;
  // There 4 were missing where sm_86 and later had enough.
  const int missing = (arch.sm < 86 ? 4 : 0) + (looks_keys_up(c) ? kLookUpSlack : 0);
  return c.planned_registers() + missing + 0.55 * c.warp_columns() > 252 - 0.8 * (255 - available);
}

// The model behind the order of candidates (docs/MEASURING.md says how its constants are fitted);
// what it must get right is the order, not the microseconds.

// Fitted on an H200 to 80 configs over 16 problems, of head dims 64 and 128. There an mma.sync of
// TF32 keeps its scheduler from issuing anything else: times add up.
constexpr double kMma = 0.948, kFma = 0.7, kFmaLoad = 12.0, kIssue = 0.84, kL2ClocksPerByte = 0.047;
constexpr double kStepWait = 270, kTileWait = 145, kAlone = 1.125, kUnoverlapped = 0.26,
                 kStart = 9440, kAddParts = 800, kHeaviestTile = 1.6, kCopy = 1.97;

/// Clocks of a warp scheduler for a warp's softmax step.
double step_clocks(const Typed& c, const Arch& arch) {
  constexpr int kSchedulers = 4, kFmaOfMma = 1024;
  const double macs_qk = double(c.warp_m) * c.step_n * c.head_dim,
               macs_pv = double(c.warp_m) * c.step_n * c.warp_columns();
  const double scores = double(c.warp_m) * c.step_n / 32;  // of a thread
  const double rest = 40 + 6 * c.thread_rows();
  if (c.math == kMathFma) {
    const double padded = double(c.warp_m) * c.step_n * c.thread_columns() * 8;
    const double loads = c.head_dim / 4.0 * (c.thread_rows() + c.step_n / 8.0) +
                         c.step_n * (c.thread_rows() + c.thread_columns()) / 4.0;
    return (macs_qk + padded) * kSchedulers / arch.fp32_fma_per_clock_per_sm * kFma +
           kIssue * (kFmaLoad * loads + 10 * scores + rest);
  }
  const int products = c.math == kMath3xTf32 ? 3 : 1;
  const double mma = products * (macs_qk + macs_pv) / kFmaOfMma;
  const double mma_clocks = kFmaOfMma * kSchedulers / (arch.mma_fma_per_clock_per_sm / 2.0) * kMma;
  const double k_loads = c.head_dim / 8.0 * c.step_n / 16,
               q_loads = c.q_in_regs ? 0 : c.head_dim / 8.0 * c.warp_m / 16,
               v_loads = c.step_n / 8 * std::ceil(c.warp_columns() / 32.0) * 2;
  // Each of the four words of a load is split in two (cut: Q and K; rounded: V), or rounded.
  const double other = products == 3 ? 9 * (k_loads + q_loads) + 13 * v_loads + 14 * scores +
                                           c.thread_rows() * c.thread_columns()
                                     : 5 * (k_loads + q_loads + v_loads) + 9 * scores;
  return mma * mma_clocks + kIssue * (other + rest);
}

double model_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const double step = step_clocks(c, device.arch);
  const double tile_bytes = double(c.block_n()) * (c.head_dim + c.head_dim_v) * 4;
  const double issue = c.num_warps() / 4.0 *
                       (c.steps * step + kCopy * tile_bytes / c.alignment / c.num_threads());
  const double l2 = tile_bytes * kL2ClocksPerByte;
  const double busy = std::max(issue, l2) + 0.25 * std::min(issue, l2);
  // What a block takes by itself: with one warp a scheduler nothing hides its waits.
  const double serial = c.steps * (step * kAlone + kStepWait) + kTileWait * (c.stages == 1 ? 3 : 1);

  const double heads = double(problem.batch) *
                       double(c.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  const double blocks = double(query_tiles(problem, c.block_m(), c.pack_gqa));
  if (blocks == 0) return 0;
  const double tiles = visited_keys(problem, c.block_m(), c.pack_gqa, c.block_n()).all * heads;
  // Blocks that an SM really gets at once: few, where there are few queries.
  const double per_sm = blocks / device.num_sms;
  const double resident = std::clamp(std::ceil(per_sm), 1.0, double(c.blocks_per_sm));
  const double alone = serial / resident;
  const double clocks_per_tile = std::max(busy, alone) + kUnoverlapped * std::min(busy, alone);
  double idle = std::max(std::ceil(per_sm / resident) * resident, per_sm) / per_sm;
  if (later_see_more(c)) {
    const TileOrder order = tile_order(problem, c.block_m(), c.pack_gqa, c.head_group_mb, true);
    idle = per_sm > resident ? idle_factor(order, device.num_sms * resident) : idle * kHeaviestTile;
  } else if (c.head_group_mb != 0) {
    idle *= 1.02;  // groups only spread the reads of L2
  }
  const double start = (kStart + kAddParts * std::log2(c.warps_n)) *
                       std::ceil(per_sm / c.blocks_per_sm);
  return (tiles / device.num_sms * clocks_per_tile * idle + start) / device.sm_clock_mhz;
}

double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  // A spill costs time, or very little: measure it, but do not start with it. Three products into
  // 128 registers of output always spill, and so do others without 24 registers to spare.
  constexpr double kSpillRisk = 1.12, kSpills = 2.5;
  const bool too_wide = c.math == kMath3xTf32
                            ? c.thread_rows() * c.thread_columns() >= 128 && c.warp_columns() > 128
                            : c.planned_registers() + 24 > registers_available(c, device.arch);
  const double risk = too_wide ? kSpills : registers_are_tight(c, device.arch) ? kSpillRisk : 1.0;
  return model_us(c, problem, device) * risk;
}

std::string describe(const Typed& c) {
  const char* const products[] = {"multiply-adds", "3xTF32", "TF32"};
  const auto over = [](const char* what, int warps) {
    return warps == 1 ? "" : fmt::format("{} over {} warps", what, warps);
  };
  return phrases({fmt::format("{}x{} x {} keys{}", c.warps_m, c.warp_m, c.block_n(),
                              c.steps == 1 ? "" : fmt::format(" by {}", c.step_n)),
                  products[c.math], over("keys", c.warps_n), over("columns", c.warps_d),
                  fmt::format("stages {}", c.stages), if_so(c.q_in_regs, "Q in registers"),
                  blocks_words(c.blocks_per_sm), pack_words(c.pack_gqa),
                  head_group_words(c.head_group_mb)});
}

KernelTraits kernel_of(const Typed& c) {
  return {
      .symbol = shape_name(kName, c, c.block_m(), c.block_n()),
      .folder = kName,
      .type = "FwdRegtileF32",
      .params = OwnParams::of<FwdTiledParams>("FwdTiledParams"),
      .pieces = &kDensePieces,
      .tiling = {.block_m = c.block_m(), .pack_gqa = c.pack_gqa, .blocks_per_sm = c.blocks_per_sm},
      .block_m = "block_m()",
      .block_n = "block_n()"};
}

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c));
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const KernelTraits kernel = kernel_of(c);
  const Assembly assembly = assemble(problem, c, kernel);
  const LaunchWork work = launch_work(assembly, device, c.head_group_mb);
  LaunchStep step = step_of(symbol_of(assembly), c.num_threads(), c.smem_bytes(),
                            work.tiles.all_tiles());
  fill_argument(step, work,
                [&](Argument& argument) { argument.fwd(problem).value(work.tiles.order); });
  return launch_of_tiles(work, std::move(step));
}

}  // namespace

extern const Family fwd_regtile_f32;
constinit const Family fwd_regtile_f32 = typed_family<kFields, illegal, needless, estimate_us,
                                                      render, launch, describe>({
    .name = kName,
    .summary = "fp32 in register tiles: multiply-adds, 3xTF32 or TF32 on sm_80 and later",
    .tier = Tier::kProduct,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                kFeatureUnequalHeadDims | kFeatureUnaligned | kFeaturesOfPieces,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
