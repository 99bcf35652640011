// family.cpp - fwd_wgmma_sm90a as a Family: what it serves, its search space, source and launch.
#include <algorithm>
#include <cstdint>
#include <utility>

#include <fmt/format.h>
#include "attnforge/error.h"
#include "generator/family.h"
#include "generator/problem/bucket.h"
#include "generator/tensors/stored_rows.h"
#include "generator/typed_family.h"
#include "templates/fwd_wgmma_sm90a/estimate.h"
#include "templates/fwd_wgmma_sm90a/fp8_sums.cuh"
#include "templates/hopper/wgmma_text.h"
#include "templates/host/common_fields.h"
#include "templates/host/common_rejects.h"
#include "templates/host/fwd_params.h"
#include "templates/host/kernel_source.h"
#include "templates/host/launch_work.h"
#include "templates/host/memory_time.h"
#include "templates/host/split_counts.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

using Typed = FwdWgmmaSm90aTyped;
constexpr std::string_view kName = "fwd_wgmma_sm90a";

constexpr Field<Typed> kFields[] = {
    {"warpgroups", &Typed::warpgroups, from_to(1, 3)},
    {"block_n", &Typed::block_n, from_to(16, 256, 16)},
    {"k_stages", &Typed::k_stages, from_to(2, 8)},
    {"v_stages", &Typed::v_stages, from_to(2, 8)},
    {"q_in_regs", &Typed::q_in_regs, kFlag},
    {"q_stages", &Typed::q_stages, from_to(1, 2)},
    {"pingpong", &Typed::pingpong, kFlag},
    {"grid", &Typed::grid, from_to(kGridPlain, kGridShares)},
    {"blocks_per_sm", &Typed::blocks_per_sm, from_to(1, 4)},
    {"swizzle", &Typed::swizzle, doubled(64, 128)},
    {"pack_gqa", &Typed::pack_gqa, kPackedHeads},
    {"head_group_mb", &Typed::head_group_mb, kHeadGroupsMb},
    {"own_lists", &Typed::own_lists, kFlag},
    {"num_splits", &Typed::num_splits, from_to(1, kMostSplits)},
};

/// Registers beside the planned ones that the main loop of a consumer needs. With fewer, ptxas
/// spills, and then serializes the products.
constexpr int kRegisterSlack = 28, kSoftcapSlack = 8, kScoreCodeSlack = 8, kMaskCodeSlack = 8,
              kMaskArgumentsSlack = 64, kTextBitsSlack = 4, kTextBitsOfPagesSlack = 8;
// Head dims of Q K^T and P V together from which heads may be walked in groups even where they are
// few, and from which tiles of few keys are all that fits.
constexpr int kLargeHeadDims = 320, kLargestHeadDims = 384;
constexpr int kLongestPacked = 1024;         // queries of a head; more fill tiles of 128 rows
constexpr int kMostColumns = 256;            // of a wgmma's result
constexpr int kMostRows = 3 * 64;            // of a query tile
constexpr int kListedGroupMb = 32;           // first of those tried with lists of keys
constexpr std::int64_t kMaxTiles = 1 << 30;  // and as many again do not overflow a tile's number

static_assert(sizeof(TileCounters) <= kCounterBytes);
static_assert(offsetof(TileCounters, runs) == kRunsCounter * sizeof(unsigned));

TileSchedule work_of(const Problem& problem, const Typed& c) {
  const QueryTiling tiling = tiling_of(c);
  return tile_schedule(problem, tile_source(problem, c.has_key_lists(), tiling), tiling,
                       c.head_group_mb, later_see_more(c));
}

/// What products of 8 bits do not take.
Reason wrong_fp8(const Problem& problem) {
  if (problem.head_dim % 16 != 0 || problem.head_dim_v % 16 != 0)
    return "takes q of 8 bits with head dims that are multiples of 16";
  if (problem.softcap != 0.0f || !problem.score.empty())
    return "takes q of 8 bits without softcap or score";
  if (has_block_mask(problem) || !problem.mask.empty())
    return "takes q of 8 bits without lists of keys: blocks or mask";
  return "";
}

std::string supports(const Problem& problem, const Arch& arch) {
  if (!arch.wgmma || !arch.tma) return "needs wgmma and TMA (sm_90a)";
  if (Reason no = is_low_bit(problem.dtype_q) ? wrong_fp8(problem) : not_16_bits(problem))
    return no.text();
  if (has_low_bit_kv(problem) && !is_low_bit(problem.dtype_q))
    return "takes k and v of 8 bits with a q of them alone";
  if (Reason no = below_alignment(problem, 16)) return no.text();
  if (Reason no = head_dim_above(problem, kMostColumns)) return no.text();
  if (problem.page_size % 8 != 0) return "takes pages of whole multiples of 8 rows, by TMA";
  const std::int64_t tiles = query_tiles(problem, 64);
  if (tiles > kMaxTiles) return fmt::format("needs {} query tiles, more than 2^30", tiles);
  return "";
}

/// Columns of shared memory that a row of Q or K and a row of V take with a swizzle.
int padded_columns(const Shape& shape, int swizzle) {
  const int chunk = swizzle / element_bytes(shape.dtype);
  return round_up(shape.head_dim, chunk) + round_up(shape.head_dim_v, chunk);
}

/// Whether even tiles of 64 rows are so few that each has an SM of its own. Time is then latency:
/// of the loads first of all.
bool few_tiles(const Problem& problem, const DeviceFacts& device) {
  return query_tiles(problem, 64) <= device.num_sms;
}

/// Whether the largest query tile has all rows of a head and of those that share its keys.
bool fits_one_tile(const Problem& problem) {
  return problem.seqlen_q * gqa_group(problem) <= kMostRows;
}

/// Whether a query tile of a config is all that a head has.
bool one_tile(const Typed& c, const Problem& problem) {
  return bucket_seqlen(problem.seqlen_q) * c.pack_gqa <= c.tile_rows();
}

std::vector<Axis> axes(const Problem& problem, const DeviceFacts& device) {
  const Shape shape = shape_of(problem);
  const bool masked = has_window(shape);
  const int group = gqa_group(problem);
  // Values that this problem has no use for are left out here: the product of the axes is walked.
  const bool packs = !shape.has_key_lists() && group > 1 && group <= kMostRows &&
                     problem.seqlen_q < kLongestPacked;
  const bool narrow = padded_columns(shape, 64) < padded_columns(shape, 128);
  const bool few = few_tiles(typical_problem(problem), device);
  const std::vector<int> stages = few || shape.has_key_lists() ? std::vector<int>{2, 3, 4}
                                                               : std::vector<int>{2, 3};
  std::vector<int> groups = masked ? std::vector<int>{32, 16, 64} : std::vector<int>{0, 32};
  if (shape.has_key_lists()) {
    groups = {kListedGroupMb, 16, 64};
    // All heads as one: the longest query tiles of a list come first among all.
    const int all = head_groups_mb(problem, device).front();
    if (std::ranges::find(groups, all) == groups.end()) groups.push_back(all);
  } else if (shape.has_tile_queue()) {
    groups = head_groups_mb(problem, device);
    // One tile reads the keys once: nothing is left in the L2 for another.
    if (has_few_rows(problem)) groups.resize(1);
  } else if (shape.head_dim + shape.head_dim_v >= kLargestHeadDims) {  // a head takes many MB
    groups = masked ? std::vector<int>{32, 16, 64, 48, 24, 8}
                    : std::vector<int>{0, 32, 64, 16, 8, 4};
  } else if (few && shape.head_dim + shape.head_dim_v < kLargeHeadDims) {
    groups.resize(1);  // all are under way at once
  }
  // The next block that is free takes a tile of unequal work.
  std::vector<int> grids{masked || shape.has_tile_queue() ? kGridDynamic : kGridStatic, kGridPlain};
  if (fits_one_tile(problem)) grids.push_back(kGridShares);
  const auto either = [](int usual, bool choice, int other) {
    return choice ? std::vector<int>{usual, other} : std::vector<int>{usual};
  };
  return {
      {"warpgroups", {2, 3, 1}},
      {"block_n", fitting(shape, {128, 112, 96, 80, 64, 48, 32, 144, 160, 176, 192})},
      {"k_stages", stages},
      {"v_stages", stages},
      {"q_in_regs", {0, 1}},
      {"q_stages", {1, 2}},
      {"pingpong", {1, 0}},
      {"grid", grids},
      {"blocks_per_sm", {1, 2, 3}},
      {"swizzle", either(128, narrow, 64)},
      {"pack_gqa", either(1, packs, group)},
      {"head_group_mb", groups},
      {"own_lists", either(0, may_have_own_lists(shape, typical_problem(problem), device), 1)},
      splits_axis(problem, device),
  };
}

bool memory_fits(const Typed& c, const Arch& arch) {
  return c.smem_bytes() <= arch.smem_per_block_bytes && smem_has_room(c, arch);
}

/// Of a thread: output, scores, probabilities and Q in the main loop, and what else it needs.
int needed_registers(const Typed& c, const Problem& problem) {
  if (is_low_bit(c.dtype))
    return Fp8Sums{c}.registers(Fp8Sums{c}.two_levels() ? Fp8Sums{c}.columns() : 0) +
           (c.q_in_regs ? ceil_div(c.head_dim, 8) : 0);
  const int planned = c.head_dim_v / 2 + c.block_n / 2 + c.block_n / 4 +
                      (c.q_in_regs ? 4 * ceil_div(c.head_dim, 16) : 0);
  // Each cap of a wide tile's scores has its own.
  const int softcap = c.softcap ? std::max(kSoftcapSlack, c.block_n / 16) : 0;
  const int text_bits = c.page_size == 0 ? kTextBitsSlack : kTextBitsOfPagesSlack;
  const int usual = planned + kRegisterSlack + softcap + (c.user_score ? kScoreCodeSlack : 0) +
                    (c.user_mask == 0   ? 0
                     : c.text_bits      ? text_bits
                     : c.user_mask == 1 ? kMaskCodeSlack
                                        : kMaskArgumentsSlack);
  // Elements that lanes read by themselves are there while others are not.
  const int rows = c.may_tile_rows() ? 0 : row_registers(problem, c.block_n / 2);
  return rows == 0 ? usual : std::max(usual, planned + rows + (c.joins() ? 24 : 16));
}

Reason product_too_wide(const Typed& c) {
  return wide_product(std::max(c.block_n, c.head_dim_v), c.launch_registers());
}

bool registers_fit(const Typed& c, const Problem& problem) {
  return needed_registers(c, problem) <= c.consumer_registers() && !product_too_wide(c);
}

int split_smem_bytes(const Typed& c) { return split_smem_bytes(c, c.grid == kGridShares); }

/// Reasons against this number of splits that other numbers do not share.
Reason wrong_number_of_splits(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (!c.has_parts()) return "";
  if (c.has_key_lists()) return "the tiles of a list are not split";
  if (c.grid != kGridPlain && c.num_splits > 1)
    return "blocks that take several query tiles do not split keys, but may have shares of them";
  if (c.grid == kGridShares) {
    if (!one_tile(c, problem)) return "keys are shared out where one tile has all rows of a head";
    if (Reason wrong = wrong_shares(problem)) return wrong;
  }
  if (Reason wrong = wrong_splits(problem, c.num_splits, device)) return wrong;
  return too_much_smem(c.smem_bytes() + split_smem_bytes(c), device.arch);
}
Reason needless_number_of_splits(const Typed& c, const Problem& problem,
                                 const DeviceFacts& device) {
  if (!c.has_parts()) return "";
  if (!smem_has_room(c, device.arch, split_smem_bytes(c)))
    return "an SM has no room for so many blocks with what each knows of its splits";
  if (c.block_n % 32 != 0 || c.block_n < 64 || c.k_stages != c.v_stages)
    return "keys are split in tiles of 64 or more, with as many stages of K as of V";
  if (c.pack_gqa == 1 && gqa_group(problem) > 1 && gqa_group(problem) <= kMostRows)
    return "each head would read the keys that one tile of all heads reads once";
  if (c.grid == kGridShares && !c.has_tile_queue() && c.head_group_mb != (has_window(c) ? 32 : 0))
    return "shares have their own order of heads";
  if (c.grid == kGridShares) return needless_shares(problem, tiling_of(c), device);
  return needless_splits(problem, tiling_of(c), device, has_unequal_sequences(c, problem));
}

/// Whole query tiles where blocks could have shares of their keys. A smaller batch of the bucket
/// has a last round with few of them, which the winner of the bucket was not measured in.
Reason needless_rounds(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  constexpr double kMostRounds = 8;
  constexpr double kShortUs = 100;  // of keys from memory: fewer are gone before shares pay
  if (c.has_parts() || c.has_key_lists() || !fits_one_tile(problem) || wrong_shares(problem) ||
      !one_tile(c, problem) || memory_us(problem, device) < kShortUs)
    return "";
  const double tiles = blocks_of(c, problem), places = places_of(tiling_of(c), device);
  if (tiles <= places || tiles > kMostRounds * places ||
      needless_shares(problem, tiling_of(c), device))
    return "";
  return "so few rounds of query tiles end unevenly, shares of their keys do not";
}

bool every_tile_at_once(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  return work_of(problem, c).all_tiles() <= std::int64_t{device.num_sms} * c.blocks_per_sm;
}

/// Whether one warpgroup on an SM, with tiles in two rounds, may beat two that share their keys:
/// where twice the rows see up to twice the keys, and an SM has no room for two such blocks.
bool stays_narrow(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  return c.warpgroups == 1 && c.head_dim + c.head_dim_v >= kLargestHeadDims &&
         rows_see_alike(problem, c.block_m()) &&
         work_of(problem, c).all_tiles() <= std::int64_t{2} * device.num_sms * c.blocks_per_sm;
}

/// Reasons against lists of keys that blocks make themselves.
Reason wrong_own_lists(const Typed& c) {
  if (!c.own_lists) return "";
  if (!c.may_list_alone()) return "blocks make lists of masks of blocks alone, for fixed lengths";
  if (c.grid != kGridPlain) return "blocks that take several query tiles make no lists";
  return "";
}
Reason needless_own_lists(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (!c.own_lists) return "";
  if (c.head_group_mb != kListedGroupMb) return "all heads are under way at once";
  if (!every_tile_at_once(c, problem, device) && !stays_narrow(c, problem, device))
    return "tiles that wait for others want an order: the longest first";
  return "";
}

Reason illegal(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const Arch& arch = device.arch;
  if (Reason wrong = wrong_pack(problem, c.pack_gqa)) return wrong;
  if (Reason wrong = wrong_number_of_splits(c, problem, device)) return wrong;
  if (Reason wrong = wrong_own_lists(c)) return wrong;
  if (Reason wrong = illegal_by_parts(c, problem, tiling_of(c), device)) return wrong;
  if (c.pingpong && c.warpgroups == 1) return "one warpgroup takes no turns";
  if (!Fp8Sums{c}.exact()) {
    return Reason("block_n={}: sums of two levels are of at most 128 keys; fast_sums of any",
                  c.block_n);
  }
  if (Reason wrong = invalid(c)) return wrong;
  if (c.blocks_per_sm * c.num_threads() > arch.max_threads_per_sm)
    return "more threads than an SM holds";
  if (!memory_fits(c, arch)) {
    return Reason("{} blocks of {} bytes of shared memory each do not fit the {} of an SM",
                  c.blocks_per_sm, c.smem_bytes(), arch.smem_per_sm_bytes);
  }
  return product_too_wide(c);
}

/// Sums of two levels in so many rounds that each waits for the one before.
Reason needless_rounds_of_sums(const Typed& c) {
  constexpr int kMostRounds = 4;
  return c.head_dim_v > kMostRounds * Fp8Sums{c}.columns() ? "few registers are left for sums" : "";
}

/// Buffers of Q, K and V that nothing waits for.
Reason needless_buffers(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (c.swizzle < 128 && padded_columns(c, c.swizzle) >= padded_columns(c, 2 * c.swizzle))
    return "a wider swizzle pads no more";
  if (c.q_in_regs && c.q_stages > 1) return "Q in registers frees its buffer at once";
  if (c.grid == kGridPlain && c.q_stages > 1) return "a block with one tile has one Q";
  if (c.k_stages > 2 && c.block_n > 64 && !few_tiles(problem, device))
    return "two large tiles are enough to hide the loads";
  if (c.k_stages != c.v_stages && problem.seqlen_q * c.pack_gqa > 64)
    return "as many tiles of K as of V";
  return "";
}

/// Tiles that are larger than what there is, or smaller than what fits.
Reason needless_sizes(const Typed& c, const Problem& problem, const Arch& arch) {
  if (c.warpgroups > 1 && problem.seqlen_q * c.pack_gqa <= 64 * (c.warpgroups - 1))
    return "a warpgroup would have no rows";
  if (c.block_n > 64 && c.block_n - 32 >= problem.seqlen_kv) return "the key tile would be empty";
  if (c.head_group_mb == 64 && 4 * problem.seqlen_kv * (c.head_dim + c.head_dim_v) < (16 << 20))
    return "small heads: few MB of them at a time are enough";
  Typed more = c;
  more.block_n += 16;
  if (c.block_n < 64 && c.head_dim + c.head_dim_v < kLargestHeadDims && memory_fits(more, arch) &&
      registers_fit(more, problem))
    return "there is room for more keys";
  return needless_pack(problem, c.pack_gqa, kLongestPacked);
}

/// How blocks share the SMs.
Reason needless_blocks(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  const bool at_once = every_tile_at_once(c, problem, device);
  if (c.grid == kGridShares) return c.blocks_per_sm > 1 && c.pingpong ? "blocks take turns" : "";
  if (c.grid != kGridPlain && at_once) return "every tile has an SM of its own";
  if (c.blocks_per_sm * c.warpgroups < 2 && !at_once && problem.seqlen_q * c.pack_gqa > 64 &&
      !stays_narrow(c, problem, device))
    return "one warpgroup leaves the SM idle";
  return c.blocks_per_sm > 1 && c.pingpong ? "blocks take turns by themselves" : "";
}

Reason needless(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  if (Reason waste = needless_number_of_splits(c, problem, device)) return waste;
  if (Reason waste = needless_own_lists(c, problem, device)) return waste;
  if (Reason waste = needless_rounds(c, problem, device)) return waste;
  if (!registers_fit(c, problem)) {
    return Reason("about {} registers for the {} that a thread has", needed_registers(c, problem),
                  c.consumer_registers());
  }
  if (Reason waste = needless_rounds_of_sums(c)) return waste;
  if (Reason waste = needless_buffers(c, problem, device)) return waste;
  if (Reason waste = needless_sizes(c, problem, device.arch)) return waste;
  if (Reason waste = needless_blocks(c, problem, device)) return waste;
  return needless_by_parts(c, problem, tiling_of(c), device);
}

std::string describe(const Typed& c) {
  const char* const grids[] = {"one tile per block", "persistent", "dynamic", "shares of keys"};
  return phrases(
      {fmt::format("{}x64 x {} keys", c.warpgroups, c.block_n),
       fmt::format("stages {}+{}", c.k_stages, c.v_stages), if_so(c.q_in_regs, "Q in registers"),
       if_so(c.q_stages == 2, "two tiles of Q"), if_so(c.pingpong, "ping-pong"), grids[c.grid],
       c.blocks_per_sm == 1 ? "" : blocks_words(c.blocks_per_sm),
       c.swizzle == 128 ? "" : fmt::format("swizzle {}", c.swizzle), pack_words(c.pack_gqa),
       head_group_words(c.head_group_mb), if_so(c.own_lists, "lists by blocks"),
       if_so(c.num_splits > 1, fmt::format("keys over {} blocks", c.num_splits).c_str())});
}

/// Without the text of its products, which a launch has no use for.
KernelTraits kernel_of(const Typed& c) {
  return {.symbol = shape_name(kName, c, c.block_m(), c.block_n),
          .folder = kName,
          .type = "FwdWgmmaSm90a",
          .params = OwnParams::of<FwdWgmmaSm90aParams>("FwdWgmmaSm90aParams"),
          .launch_fields = 1,
          .pieces = &kDenseTmaPieces,
          .tiling = tiling_of(c),
          .block_m = "tile_rows()",
          .gathers = true,
          .gathered_header = "fwd_wgmma_sm90a/gathered_tiles.cuh",
          .low_bits_header = "fwd_wgmma_sm90a/fp8.cuh",
          .row_ring_header = "hopper/workers.cuh",
          .coarse = true,
          .shares_sms = false};
}

Source render(const Typed& c, const Problem& problem) {
  KernelTraits kernel = kernel_of(c);
  std::string products = wgmma_text(c.dtype, c.block_n);
  if (Fp8Sums{c}.columns() != c.block_n) products += wgmma_text(c.dtype, Fp8Sums{c}.columns());
  kernel.declarations = "namespace attnforge {\n" + products + "}  // namespace attnforge\n";
  return kernel_source(untyped(kName, c, kFields), c, problem, kernel);
}

/// The maps of q, k and v.
void add_tensor_maps(Argument& argument, const Typed& c, const Problem& problem) {
  using Operand = TensorMapSpec::Operand;
  const StoredRows stored = stored_rows(problem);
  const TensorMapSizes q_sizes{
      .rows = stored.q, .heads = problem.num_heads_q, .batch = stored.batch};
  const TensorMapSizes kv_sizes{.rows = problem.seqlen_kv == 0 ? 0 : stored.kv,
                                .heads = problem.num_heads_kv,
                                .batch = stored.kv_batch};
  const TensorMapSpec q{.operand = Operand::kQ,
                        .dtype = problem.dtype_q,
                        .columns = c.head_dim,
                        .packed_heads = c.pack_gqa,
                        .rows_of_run = stored.of_run,
                        .box_columns = c.chunk_columns(),
                        .box_heads = c.pack_gqa,
                        .box_rows = c.box_queries(),
                        .swizzle_bytes = c.swizzle};
  TensorMapSpec k = q;
  k.operand = Operand::kK;
  k.packed_heads = k.box_heads = 0;
  k.box_rows = c.box_keys(c.block_n);
  k.rows_of_run = stored.of_run && !stored.pool;
  k.batch_of_run = stored.pool;
  TensorMapSpec v = k;
  v.operand = Operand::kV;
  v.columns = c.head_dim_v;
  argument.tensor_map(q, q_sizes).tensor_map(k, kv_sizes).tensor_map(v, kv_sizes);
}

Launch launch(const Typed& c, const Problem& problem, const DeviceFacts& device) {
  KernelTraits kernel = kernel_of(c);
  kernel.tiling.num_splits = c.grid == kGridShares
                                 ? results_of_shares(problem, kernel.tiling, device)
                                 : splits_of_launch(problem, kernel.tiling, device);
  const Assembly assembly = assemble(problem, c, kernel);
  const LaunchWork work = launch_work(assembly, device, c.head_group_mb);
  const std::int64_t tiles = work.tiles.all_tiles();
  ATTNFORGE_ASSERT(tiles <= kMaxTiles, "supports() lets no more tiles through");
  LaunchStep step = step_of(symbol_of(assembly), c.num_threads(), c.smem_bytes());
  const std::int64_t resident = std::max(1, device.num_sms * c.blocks_per_sm);
  const bool shares = c.grid == kGridShares;
  step.grid = {static_cast<unsigned>(shares                 ? resident
                                     : c.grid == kGridPlain ? tiles
                                                            : std::min(tiles, resident)),
               static_cast<unsigned>(shares ? 1 : kernel.tiling.num_splits)};
  fill_argument(step, work, [&](Argument& argument) {
    argument.fwd(problem).value(work.tiles.order).value(static_cast<int>(tiles));
    if (c.grid == kGridDynamic)
      argument.counters();
    else
      argument.value<TileCounters*>(nullptr);
    add_tensor_maps(argument, c, problem);
  });
  return launch_of_tiles(work, std::move(step));
}

}  // namespace

extern const Family fwd_wgmma_sm90a;
constinit const Family fwd_wgmma_sm90a = typed_family<kFields, illegal, needless,
                                                      estimate_fwd_wgmma_sm90a_us, render, launch,
                                                      describe, spread_of_fwd_wgmma_sm90a>({
    .name = kName,
    .summary = "Hopper: TMA loads, wgmma products, specialised warps; fp16 and bf16 on sm_90a",
    .tier = Tier::kProduct,
    .features = kFeaturesOfWindows | kFeaturesOfScores | kFeatureLse | kFeatureGqa |
                kFeatureUnequalHeadDims | kFeaturesOfPieces | kFeaturesOfLists | kFeatureLowBits,
    .supports = supports,
    .axes = axes,
});

}  // namespace attnforge
