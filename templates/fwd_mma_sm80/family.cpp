// family.cpp - fwd_mma_sm80 as a Family: what it serves, its search space, source and launch.
#include <algorithm>
#include <cstdint>
#include <utility>

#include "generator/arch.h"
#include "generator/family.h"
#include "generator/problem/bucket.h"
#include "generator/typed_family.h"
#include "templates/fwd_mma_sm80/config.h"
#include "templates/fwd_mma_sm80/estimate.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fitted_model.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/host/memory_time.h"
#include "templates/host/split_counts.h"
#include "templates/host/tile_order.h"

namespace attnforge {
namespace {

/// What is compiled in, and what the launch alone decides.
struct Typed : FwdMmaSm80Config {
  int num_splits;  // blocks of a query tile, each with a part of its keys
};
constexpr std::string_view kName = "fwd_mma_sm80";

constexpr Field<Typed> kFields[] = {
    {"block_m", &Typed::block_m, doubled(8, 256)},
    {"num_warps", &Typed::num_warps, doubled(2, 16)},
    {"block_n", &Typed::block_n, from_to(16, 256, 16)},
    {"step_n", &Typed::step_n, from_to(16, 256, 16)},
    {"stages", &Typed::stages, from_to(1, 4)},
    {"q_in_regs", &Typed::q_in_regs, from_to(0, 2)},
    {"blocks_per_sm", &Typed::blocks_per_sm, from_to(1, 16)},
    {"pack_gqa", &Typed::pack_gqa, kPackedHeads},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
    {"head_dim_warps", &Typed::head_dim_warps, from_to(1, 2)},
    {"pad_head_dim", &Typed::pad_head_dim, kFlag},
    {"num_splits", &Typed::num_splits, from_to(1, kMostSplits)},
};

/// Blocks of fewer bits are small: an SM holds more of them than they ask for.
QueryTiling tiling_of(const Typed& c) {
  QueryTiling tiling{.block_m = c.block_m,
                     .block_n = c.block_n,
                     .pack_gqa = c.pack_gqa,
                     .blocks_per_sm = c.blocks_per_sm,
                     .num_splits = c.num_splits};
  if (!c.low_bits()) return tiling;
  tiling.threads = c.num_threads();
  tiling.registers = std::min(c.registers_taken(),
                              65536 / (c.num_threads() * c.resident_blocks()) / 8 * 8);
  tiling.smem_bytes = c.smem_bytes() + (c.num_splits > 1 ? split_smem_bytes(c, false) : 0);
  return tiling;
}

/// Registers in addition to the planned ones that ptxas needs for addresses and operands. Fewer,
/// and it spills.
constexpr int kRegisterSlack = 24, kMaskCodeSlack = 16, kMaskBitsSlack = 56;
constexpr int kSmallestBlockM = 32;  // of one warp for 16 rows; two may share them

int register_slack(const Typed& c) {
  return kRegisterSlack + c.user_mask * kMaskCodeSlack + (c.mask_bits ? kMaskBitsSlack : 0);
}

bool fits(const Typed& c, const Arch& arch) { return sm_has_room(c, arch, register_slack(c)); }

/// Less shared memory than Hopper's: 100 KB an SM, or 164.
bool is_small(const Arch& arch, int kb) { return arch.smem_per_sm_bytes < kb << 10; }

/// Small tiles and half-empty SMs pay only where memory for more is missing: at large head dims. A
/// small SM has less work for its tensor cores to hide, and two blocks are enough for it.
bool memory_is_scarce(const Typed& c, const Problem& problem, const Arch& arch) {
  Typed modest = c;
  modest.block_m = 64;
  modest.block_n = 32;
  modest.stages = 1;
  modest.q_in_regs = 0;
  return (is_small(arch, 128) && !has_few_rows(problem) ? 2 : 4) * modest.smem_bytes() >
         arch.smem_per_sm_bytes;
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (Reason no = without_cp_async(arch)) return no.text();
  if (Reason no = not_16_bits(problem)) return no.text();
  if (Reason no = below_alignment(problem, 4)) return no.text();
  return too_many_query_tiles(problem, kSmallestBlockM / 2).text();
}

constexpr int kOneWarp = 256;  // columns of output that the registers of a warp hold

/// Rows of a tile that has all query heads of a K/V head.
std::int64_t rows_packed(const Problem& problem) { return problem.seqlen_q * gqa_group(problem); }

/// An output of more columns than kOneWarp needs the registers of two warps; sums over more terms
/// may be faster in two, and 16 rows are too few for two otherwise. Elsewhere halves only cost.
Axis head_dim_warps(const Problem& problem) {
  Axis axis{"head_dim_warps", {1}};
  if (has_low_bit_kv(problem)) return axis;
  if (problem.head_dim > kOneWarp || rows_packed(problem) <= 16) axis = {"head_dim_warps", {1, 2}};
  if (problem.head_dim_v > kOneWarp) axis = {"head_dim_warps", {2}};
  return axis;
}

/// Tiles of 8 rows: where there are no more, or where registers hold the output of no more. A text
/// may read its arrays for whole fragments.
bool half_fragments(const Problem& problem) {
  if (!is_low_bit(problem.dtype_k) || !is_low_bit(problem.dtype_v)) return false;
  if (!problem.score.empty()) return false;
  return problem.head_dim_v > kOneWarp || (has_few_rows(problem) && rows_packed(problem) <= 8);
}

/// The sums of Q K^T are padded to 16 in any case. Rows of V of an odd number of 8 columns may be,
/// too: that moves their memory banks and the last ldmatrix, and adds no product, since the
/// compiler drops those of columns that nothing reads.
Axis pad_head_dim(const Problem& problem) {
  const bool odd = problem.head_dim_v % 16 == 8 && !has_low_bit_kv(problem);
  if (odd && problem.head_dim <= kOneWarp && problem.head_dim_v <= kOneWarp)
    return {"pad_head_dim", {0, 1}};
  return {"pad_head_dim", {0}};
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  const Shape shape = shape_of(problem);
  Axis packs{"pack_gqa", {1}};
  Axis groups{"head_group_mb", head_groups_mb(problem, device)};
  std::vector<int> tile_rows = {128, 64, 32, 256}, warps = {4, 8, 2},
                   tile_keys = {64, 32, 48, 96, 128, 16}, step_keys = {64, 32, 16, 48},
                   blocks = {2, 3, 4, 1};
  const Axis splits = splits_axis(problem, device);
  const bool packs_heads = gqa_group(problem) > 1 && !shape.has_key_lists();
  if (packs_heads) packs.values.push_back(gqa_group(problem));
  if (has_few_rows(problem)) {
    // One tile has them: it reads the keys once, and there is no order of tiles.
    const std::int64_t rows = rows_packed(problem);
    tile_rows = rows > 64   ? std::vector<int>{128, 64}
                : rows > 32 ? std::vector<int>{64, 32}
                : rows > 16 ? std::vector<int>{32, 64}
                            : std::vector<int>{32, 16, 64};
    warps = rows > 64 ? std::vector<int>{4, 2, 8} : std::vector<int>{2, 4};
    if (splits.values.size() > 1) tile_keys = {64, 32, 128};
    if (is_low_bit(problem.dtype_v)) {  // warps split a tile's keys
      tile_keys = {128, 64, 256, 32};
      blocks = {4, 3, 2, 1};
    }
    if (packs_heads) packs = {"pack_gqa", {gqa_group(problem)}};
    groups.values = {groups.values.back()};
  }
  if (half_fragments(problem)) tile_rows.insert(tile_rows.begin(), 8);
  // One stage, which has no steps, leaves a small SM memory for more keys.
  if (is_small(device.arch, 200) && !has_few_rows(problem) && problem.head_dim >= 64) {
    tile_keys.push_back(112);
    step_keys.insert(step_keys.end(), {96, 112, 128});
  }
  return {
      {"block_m", tile_rows},
      {"num_warps", warps},
      {"block_n", fitting(shape, tile_keys)},
      {"step_n", step_keys},
      {"stages", {2, 3, 1}},
      {"q_in_regs", {0, 1, 2}},
      {"blocks_per_sm", blocks},
      packs,
      groups,
      head_dim_warps(problem),
      pad_head_dim(problem),
      splits,
  };
}

/// Reasons against this number of splits that other numbers do not share.
Reason wrong_number_of_splits(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (c.num_splits == 1) return "";
  if (Reason wrong = wrong_splits(problem, c.num_splits, device)) return wrong;
  return too_much_smem(c.smem_bytes() + split_smem_bytes(c, false), device.arch);
}
Reason needless_number_of_splits(const Typed& c, const Problem& problem,
                                 const DeviceFacts& device) {
  if (c.num_splits == 1) return "";
  if (!smem_has_room(c, device.arch, split_smem_bytes(c, false)))
    return "an SM has no room for so many blocks with what each knows of its splits";
  if (!has_few_rows(problem) &&
      (c.block_m < 64 || c.block_n < 64 || c.stages != 2 || c.q_in_regs == 2 || c.pad_head_dim))
    return "many rows whose keys are split are tried in tiles of 64 or more, with two stages";
  return needless_splits(problem, tiling_of(c), device, has_unequal_sequences(c, problem));
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (Reason wrong = wrong_pack(problem, c.pack_gqa)) return wrong;
  if (c.head_dim_warps > 1 && c.num_warps % c.head_dim_warps != 0)
    return "an odd number of warps cannot share rows in pairs";
  const bool half_full = c.block_m == 8 && c.row_warps() == 1;
  if (Reason wrong = uneven_rows(c.block_m, c.row_warps()); wrong && !half_full) return wrong;
  if (Reason wrong = wrong_steps(c)) return wrong;
  if (Reason wrong = one_stage_of_steps(c.stages, c.block_n / c.step_n)) return wrong;
  if (c.block_n / c.step_n % c.key_warps() != 0)
    return "warps that share rows have whole steps of a tile's keys each";
  if (c.head_dim_warps > 1 && c.step_n != c.block_n)
    return "warps that share rows exchange their sums once a tile";
  if (Reason wrong = invalid(c)) return wrong;
  if (Reason wrong = too_much_smem(c.smem_bytes(), arch)) return wrong;
  if (Reason wrong = in_many_pages(c, c.block_n)) return wrong;
  if (Reason wrong = no_room(c, arch)) return wrong;
  if (Reason wrong = wrong_number_of_splits(c, problem, device)) return wrong;
  return illegal_by_parts(c, problem, tiling_of(c), device);
}

/// `rows` of a sequence's queries, packed heads counted.
Reason needless_tile(const Typed& c, std::int64_t rows, bool scarce) {
  if (c.step_n > 64 && (c.stages > 1 || c.block_m != 128))
    return "more than 64 keys are one step with one stage alone, of 128 rows";
  if (!scarce && c.block_n == 16 && !c.has_key_lists())
    return "16 keys per tile: there is memory for more";
  if (!scarce && c.block_m == kSmallestBlockM && rows >= 4 * kSmallestBlockM)
    return "32 rows per tile: there is memory for more";
  return "";
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (Reason waste = needless_number_of_splits(c, problem, device)) return waste;
  // What little it changes shows in the tiles that win; elsewhere it only doubles the search.
  if (c.pad_head_dim && (c.block_m < 128 || c.stages != 2 || c.q_in_regs == 2))
    return "padding to 16 is tried in tiles of 128 rows or more, with two stages";
  if (c.key_warps() > 1 && c.block_n / c.step_n != c.key_warps())
    return "warps that share rows have one step each";
  const Arch& arch = device.arch;
  if (Reason waste = many_rows(c)) return waste;
  const std::int64_t rows = problem.seqlen_q * c.pack_gqa;
  if (Reason waste = half_empty_queries(c.block_m, kSmallestBlockM, rows)) return waste;
  if (Reason waste = half_empty_keys(c.block_n, 32, problem)) return waste;
  if (Reason waste = few_registers(c, arch, register_slack(c))) return waste;
  const bool scarce = memory_is_scarce(c, problem, arch);
  if (Reason waste = needless_tile(c, rows, scarce)) return waste;
  if (Reason waste = room_for_more_blocks(c, arch, register_slack(c), scarce ? 2 : 1)) return waste;
  if (Reason waste = few_warps(c.blocks_per_sm, c.num_warps)) return waste;
  if (Reason waste = needless_pack(problem, c.pack_gqa)) return waste;
  Typed unshared = c;
  unshared.q_in_regs = 1;
  if (c.q_in_regs == 2 && c.blocks_per_sm * c.smem_bytes() * 4 < arch.smem_per_sm_bytes &&
      fits(unshared, arch)) {
    return "shared memory is not scarce: Q need not give its own away";
  }
  return needless_by_parts(c, problem, tiling_of(c), device);
}

double spread(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  return spread_of(problem, tiling_of(c), device);
}

double model_us(const Typed& c, const Problem& problem, const DeviceFacts& device,
                const FwdMmaSm80Constants& constants) {
  // Near the limit ptxas may spill, which costs time, or may not: measure it, but do not start with
  // it.
  constexpr int kSafeSlack = 68, kUnrolledSlack = 4, kSoftcapSlack = 4, kCodeSlack = 12;
  constexpr double kSpillRisk = 1.1;
  const int slack = kSafeSlack + (c.step_n == c.block_n ? kUnrolledSlack : 0) +
                    (c.softcap ? kSoftcapSlack : 0) +
                    (c.user_score || c.user_mask ? kCodeSlack : 0);
  const bool tight = c.planned_registers() + slack > registers_available(c, device.arch);
  const QueryTiling tiling = tiling_of(c);
  const bool few = has_few_rows(problem);
  const int resident = few ? blocks_of_sm(tiling, device.arch) : c.blocks_per_sm;
  const TileSource source = few && c.low_bits() ? tile_source(c, problem, tiling)
                                                : TileSource::kSizes;
  // Of a step that the kernel waits for, as only the device knows the lengths.
  constexpr double kOrderUs = 9;
  const bool ordered = source == TileSource::kList && c.lengths != kFixedLengths;
  return estimate_fwd_mma_sm80_us(c, problem, device, resident, c.num_splits, source, constants) *
             (tight ? kSpillRisk : 1.0) *
             unequal_factor(
                 c, problem, c.num_splits,
                 double(query_tiles(problem, c.block_m, c.pack_gqa)) / places_of(tiling, device)) +
         part_steps_us(c, problem, tiling, device) + (ordered ? kOrderUs : 0);
}

double estimate_us(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  return model_us(c, problem, device, fwd_mma_sm80_constants(device.arch));
}

constexpr std::string_view kConstantNames[] = {
    "tensor",  "shared", "shared_query",   "issue",       "softmax",
    "l2",      "wait",   "query_wait",     "tile_start",  "unoverlapped",
    "covered", "clock",  "memory_latency", "block_start", "sustained_clock"};
static_assert(sizeof(FwdMmaSm80Constants) == std::size(kConstantNames) * sizeof(double));

std::string describe(const Typed& c) {
  const char* const queries[] = {"", "Q in registers", "Q in registers and its memory reused"};
  return phrases(
      {fmt::format("{} x {} keys{}", c.block_m, c.block_n,
                   c.step_n == c.block_n ? "" : fmt::format(" by {}", c.step_n)),
       fmt::format("{} warps", c.num_warps), fmt::format("stages {}", c.stages),
       queries[c.q_in_regs], blocks_words(c.blocks_per_sm), pack_words(c.pack_gqa),
       head_group_words(c.head_group_mb), if_so(c.head_dim_warps == 2, "head dims over 2 warps"),
       if_so(c.pad_head_dim, "head dims padded to 16"),
       if_so(c.num_splits > 1, fmt::format("keys over {} blocks", c.num_splits).c_str())});
}

/// Whether heads, splits and sequences are the dimensions of its grid: where sequences of one
/// length have one query tile a head. Nothing decides in which the problems of a bucket differ, and
/// those of batch_invariant ones differ in their batch.
bool has_grid_order(const Typed& c, const Problem& problem) {
  constexpr std::int64_t kMostSequences = 65535;
  return c.num_splits > 1 &&
         tile_source(problem, c.has_key_lists(), tiling_of(c)) == TileSource::kSizes &&
         !problem.batch_invariant && bucket_batch(problem.batch) <= kMostSequences &&
         bucket_seqlen(problem.seqlen_q) * c.pack_gqa <= c.block_m;
}

/// Its name for pieces, with the rows that a tile has in any problem of the bucket, or "".
std::string grid_order(const Typed& c, const Problem& problem) {
  if (!has_grid_order(c, problem)) return "";
  // A tile has a row at least, for kernels of problems without queries compile too.
  return fmt::format("GridOrder<{}>",
                     std::max<std::int64_t>(bucket_seqlen(problem.seqlen_q) * c.pack_gqa, 1));
}

KernelTraits kernel_of(const Typed& c, const Problem& problem) {
  return {.symbol = shape_name(kName, c, c.block_m, c.block_n),
          .folder = kName,
          .type = "FwdMmaSm80",
          .params = OwnParams::of<FwdMmaSm80Params>("FwdMmaSm80Params"),
          .blocks_per_sm = c.low_bits() ? "resident_blocks()" : "blocks_per_sm",
          .launch_fields = 1,
          .pieces = &kDensePieces,
          .tiling = tiling_of(c),
          .gathers = true,
          .low_bits_header = "fwd_mma_sm80/low_bits.cuh",
          .coarse = true,
          .grid_order = grid_order(c, problem)};
}

Source render(const Typed& c, const Problem& problem) {
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel_of(c, problem));
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  KernelTraits kernel = kernel_of(c, problem);
  kernel.tiling.num_splits = splits_of_launch(problem, kernel.tiling, device);
  const Assembly assembly = assemble(problem, c, kernel);
  const LaunchWork work = launch_work(assembly, device, c.head_group_mb);
  LaunchStep step = step_of(symbol_of(assembly), c.num_threads(), c.smem_bytes());
  step.grid = {static_cast<unsigned>(work.tiles.all_tiles()),
               static_cast<unsigned>(kernel.tiling.num_splits)};
  if (!kernel.grid_order.empty()) {
    step.grid.z = static_cast<unsigned>(problem.batch);
    step.grid.x /= std::max(step.grid.z, 1u);
  }
  fill_argument(step, work,
                [&](Argument& argument) { argument.fwd(problem).value(work.tiles.order); });
  return launch_of_tiles(work, std::move(step));
}

}  // namespace

extern const Family fwd_mma_sm80;
constinit const Family fwd_mma_sm80 = typed_family<kFields, illegal, needless, estimate_us, render,
                                                   launch, describe, spread>({
    .name = kName,
    .summary = "mma.sync and a cp.async ring: fp16 and bf16 on sm_80 and later",
    .tier = Tier::kProduct,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                kFeatureUnequalHeadDims | kFeatureUnaligned | kFeatureLowBits | kFeaturesOfPieces |
                kFeaturesOfLists,
    .supports = supports,
    .axes = axes,
});

constinit const FittedModel fitted_fwd_mma_sm80 = fitted_model<kFields, fwd_mma_sm80_constants,
                                                               model_us>(kName, kConstantNames);

}  // namespace attnforge
