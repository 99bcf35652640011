// estimate.cpp - the model behind the order of candidates. Its constants are fitted to measurements
// (docs/MEASURING.md says how); what it must get right is the order, not the microseconds.
#include "templates/fwd_mma_sm80/estimate.h"

#include <algorithm>
#include <cmath>

#include "generator/arch.h"
#include "generator/shape.h"
#include "templates/host/fitted_model.h"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/host/split_counts.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

constexpr ConstantsOfArch<FwdMmaSm80Constants> kMeasured[] = {
#include "templates/fwd_mma_sm80/estimate_constants.inc"
};

/// Chips that no one has run: with Hopper's costs, but that their tensor cores are busy for longer,
/// which other blocks cover, and the clock that others' times imply
/// (tests/templates/published.csv). Half the rate, as GeForce has it, leaves power for the whole
/// clock; full rate costs 15% of it.
constexpr double kHalfRate = 256, kClockOfHalfRate = 1.36, kClockOfFullRate = 1.08;

constexpr double kClocksOfInstruction = 3.6;  // of a warp of low bits, which few others cover
constexpr double kMergeStartsUs = 4;          // beside combine_us()
constexpr double kEnoughAhead = 40 << 10;     // bytes on their way to an SM, of low bits
constexpr double kCrowded = 0.05, kCrowdedLines = 0.3;  // of memory's time, for as many more
constexpr double kExchange = 400;                       // two warps wait for each other's sums

/// Work of one block on one tile of keys, in clocks of an SM that does nothing else.
struct TileCost {
  double tensor;        // mma
  double shared;        // shared memory: ldmatrix reads, cp.async writes, 128 bytes a clock
  double query;         // the same for reading Q in every step, which products wait for
  double issue;         // instructions, four a clock
  double exponentials;  // 16 a clock
  double softmax;  // the part of issue between the two products, which no product of the same warp
                   // overlaps
  double l2;       // K and V on their way from L2
};

/// Instructions of a warp that make factors of `keys` keys' codes. Not fitted.
double widening(const FwdMmaSm80Config& c, int keys) {
  const auto of_code = [](int code) { return code == kInt4 ? 0.625 : is_low_bit(code) ? 0.75 : 0; };
  const int of_keys = code_of(c.dtype_k);
  const double of_k = of_keys == kInt8 ? 0 : of_keys == kInt4 ? 0.375 : of_code(of_keys);
  return (c.head_dim * of_k + c.head_dim_v * of_code(code_of(c.dtype_v))) * keys / 32;
}

/// For offsets of integers: those of a step, and that they are taken off.
double offsets_of_integers(const FwdMmaSm80Config& c, double key_steps, double softmax_steps) {
  return c.row_fragments() * (key_steps * c.offset_fragments() * c.lane_rows() +
                              softmax_steps * (c.offset_groups() > 0 ? 4 * c.out_fragments() : 0));
}

/// And of a thread for sums of their own of groups of columns.
double sums_of_groups(const FwdMmaSm80Config& c, double scores) {
  constexpr double kOfSum = 6;
  const auto more = [&](int scales) { return std::max(scales / (1 + c.kv_zero) - 1, 0); };
  return kOfSum * scores * (more(c.k_row_scales()) + more(c.v_row_scales()));
}

/// And of a warp to find a tile's rows in pages, of fewer bits.
double lookups(const FwdMmaSm80Config& c) {
  constexpr double kOfNumbers = 32, kOfScales = 24;
  if (!c.low_bits() || c.page_size == 0) return 0;
  return kOfNumbers + kOfScales * ((c.k_row_scales() > 0) + (c.v_row_scales() > 0));
}

TileCost tile_cost(const FwdMmaSm80Config& c, const Arch& arch, const FwdMmaSm80Constants& k) {
  const int depth_steps = c.depth_steps(), out_fragments = c.out_fragments(),
            rows = c.row_fragments(), warps = c.num_warps;
  const int keys = c.block_n / c.key_warps();  // of a warp
  const int key_steps = keys / 16, softmax_steps = keys / c.step_n;
  const double tile_bytes = c.k_bytes() + c.v_bytes();
  // ldmatrix of a warp: of Q, of all
  const double query_reads = c.q_in_regs ? 0 : depth_steps * rows * softmax_steps;
  const double reads = query_reads + depth_steps * key_steps +
                       key_steps * ((out_fragments + 1) / 2);
  const int for_16_keys = is_integer(c.dtype_k) ? c.lane_rows() : 2;
  const double products = rows * (double(for_16_keys) * key_steps * depth_steps +
                                  key_steps * out_fragments);  // mma of a warp
  const double scores = rows * c.lane_rows() * keys / 4.0;     // of a thread
  const double copies = tile_bytes / c.alignment / c.num_threads();
  const int out_columns = c.low_bit_v() ? c.code_fragments() * 16 : c.v_chunks() * 8;
  TileCost cost;
  cost.tensor = double(c.block_m) * c.block_n * (c.qk_chunks() * 8 + out_columns) /
                arch.mma_fma_per_clock_per_sm;
  const double exchange = 2.0 * warps * c.parts_bytes() / 128.0;  // written and read
  cost.shared = 4.0 * warps * (reads - query_reads) + tile_bytes / 128.0 + exchange;
  cost.query = 4.0 * warps * query_reads;
  cost.issue = warps / 4.0 *
               (products + reads + 4.6 * scores + 24.0 * softmax_steps * rows + 60.0 +
                1.5 * copies + lookups(c) + widening(c, keys) + sums_of_groups(c, scores) +
                offsets_of_integers(c, key_steps, softmax_steps));
  cost.exponentials = c.block_m * c.head_dim_warps * c.block_n / 16.0;
  cost.softmax = warps / 4.0 * 5.0 * scores;
  cost.l2 = c.block_n * (bytes_of(c.dtype_k, c.head_dim) + bytes_of(c.dtype_v, c.head_dim_v)) *
            k.l2 / arch.l2_bytes_per_clock_per_sm;
  return cost;
}

double units_of(const TileCost& cost) {
  return std::max({cost.tensor, cost.shared + cost.query, cost.issue, cost.l2});
}

/// Clocks of a warp for where the rows of a tile of fewer bits lie: its pages are looked up for
/// numbers and for scales, of k and of v.
double pages_of_tile(const FwdMmaSm80Config& c) {
  return c.page_size == 0 ? 0 : 200.0 + 60.0 * std::max(c.block_n / c.page_size, 1);
}

/// And until the copies of the tile are on their way.
double copies_of_tile(const FwdMmaSm80Config& c) {
  constexpr double kClocks = 50;
  const int numbers = c.k_code_bytes() + c.v_code_bytes();
  const int scales = (c.k_row_scales() > 0) + (c.v_row_scales() > 0);
  return kClocks * (double(numbers) / c.alignment + scales * c.block_n) / c.num_threads() +
         pages_of_tile(c);
}

/// Of a query tile, whose keys are split among `splits`; tiles: query tiles of the problem.
double key_tiles_of_block(const FwdMmaSm80Config& c, const Problem& problem, double tiles,
                          double splits) {
  const double heads = tiles / std::ceil(double(problem.seqlen_q) * c.pack_gqa / c.block_m);
  return std::ceil(visited_keys(problem, c.block_m, c.pack_gqa, c.block_n).all *
                   listed_share(problem, c.block_m) * heads / tiles / splits);
}
/// How much longer the memory takes for rows that begin inside its pieces, or inside
/// sectors of 32, beside rows of other heads: decode of head dims 120 to 248 with 3 and 8 K/V heads
/// on an H200 (bench/notebook/decode.md).
double odd_rows(const FwdMmaSm80Config& c, const Problem& problem) {
  constexpr double kInsidePieces = 1.15, kInsideSectors = 1.4;
  if (problem.num_heads_kv == 1) return 1;
  const auto of = [](int row) {
    return row % kMemoryPiece == 0 ? 1 : row % 32 == 0 ? kInsidePieces : kInsideSectors;
  };
  const int k = bytes_of(c.dtype_k, c.head_dim), v = bytes_of(c.dtype_v, c.head_dim_v);
  return (k * of(k) + v * of(v)) / (k + v);
}

/// A block goes through its key tiles one after another: each takes its own chain of waits, or its
/// share of an SM, and all of them the memory.
double few_rows_us(const FwdMmaSm80Config& c, const Problem& problem, const DeviceFacts& device,
                   const TileCost& cost, double own_clocks, int resident_blocks, int splits,
                   const FwdMmaSm80Constants& k) {
  const double tiles = double(query_tiles(problem, c.block_m, c.pack_gqa)), blocks = tiles * splits;
  const double per_sm = std::min<double>(resident_blocks, std::ceil(blocks / device.num_sms));
  const double latency = k.memory_latency / std::max(c.stages - 1.0, 0.6);
  const double clocks_per_tile = std::max({own_clocks, latency, units_of(cost) * per_sm});
  const double rounds = std::ceil(blocks / (double(device.num_sms) * resident_blocks));
  const double chain = rounds *
                       (k.block_start +
                        key_tiles_of_block(c, problem, tiles, splits) * clocks_per_tile) /
                       (device.sm_clock_mhz * k.sustained_clock);
  const double late = late_readers(problem, blocks, device);
  return with_memory_time(chain, problem, device, late * odd_rows(c, problem)) +
         combine_us(problem, splits, device);
}

/// few_rows_us() of fewer bits, round by round of what SMs hold.
double low_bits_us(const FwdMmaSm80Config& c, const Problem& problem, const DeviceFacts& device,
                   const TileCost& cost, double own_clocks, int resident_blocks, int splits,
                   TileSource source, const FwdMmaSm80Constants& k) {
  const double tiles = double(query_tiles(problem, c.block_m, c.pack_gqa));
  const double places = double(device.num_sms) * resident_blocks;
  // Blocks of a grid that has more than it needs find SMs as they come: some are full, others not.
  const bool by_lengths = source == TileSource::kLengths && problem.batch > 1;
  const double each = by_lengths ? splits_of_equal(tiles, splits, places) : splits,
               blocks = tiles * each;
  const double of_fullest = std::min<double>(resident_blocks, std::ceil(blocks / device.num_sms));
  const double uneven = by_lengths && each == 1 ? resident_blocks / of_fullest : 1;
  const double latency = (k.memory_latency + copies_of_tile(c)) / std::max(c.stages - 1.0, 0.6);
  const double own_instructions = kClocksOfInstruction * cost.issue * 4 / c.num_warps +
                                  pages_of_tile(c);
  const double of_block = key_tiles_of_block(c, problem, tiles, each);
  const double late = late_readers(problem, blocks, device);
  const double clocks_per_us = device.sm_clock_mhz * k.sustained_clock;
  const bool parts_of_lines = bytes_of(c.dtype_k, c.head_dim) < 128;
  // Of `together` blocks: more bytes on their way than memory needs cost it rows and L2 lines that
  // it has open, most where rows are parts of a line of several heads. The next tile is on its way
  // half of the time, those after it all of it. Nothing covers their first tiles of K, nor the
  // products of the last.
  const auto round_us = [&](double together) {
    const double of_sm = std::min<double>(resident_blocks, std::ceil(together / device.num_sms));
    const double clocks_per_tile = std::max(
        {own_clocks, own_instructions, latency, units_of(cost) * of_sm});
    const double chain = (k.block_start + of_block * clocks_per_tile) / clocks_per_us;
    const double peak = peak_bytes_per_us(device), first_bytes = c.k_bytes() * together;
    const double ahead = of_sm * (c.stages - 1.5) * (c.k_bytes() + c.v_bytes()) / kEnoughAhead;
    const double crowded = 1 +
                           (parts_of_lines ? kCrowdedLines : kCrowded) * std::max(ahead - 1, 0.0);
    return with_memory_time(chain, problem, device, late * crowded * together / blocks) +
           (peak > 0 ? first_bytes / peak : 0) + own_instructions / clocks_per_us;
  };
  const double whole = std::floor(blocks / places), rest = blocks - whole * places;
  return whole * round_us(places) + (rest > 0 ? uneven * round_us(rest) : 0) +
         (splits > 1 ? kMergeStartsUs : 0) + combine_us(problem, splits, device);
}

}  // namespace

FwdMmaSm80Constants fwd_mma_sm80_constants(const Arch& arch) {
  if (const auto* measured = constants_of_arch(kMeasured, arch.name)) return *measured;
  FwdMmaSm80Constants constants = constants_of_hopper(kMeasured);
  if (arch.sm >= 90 && arch.mma_fma_per_clock_per_sm >= 1024) return constants;
  constants.covered = 1;
  constants.clock = arch.mma_fma_per_clock_per_sm <= kHalfRate ? kClockOfHalfRate
                                                               : kClockOfFullRate;
  return constants;
}

double estimate_fwd_mma_sm80_us(const FwdMmaSm80Config& c, const Problem& problem,
                                const DeviceFacts& device, int resident_blocks, int splits,
                                TileSource source, const FwdMmaSm80Constants& k) {
  const TileCost cost = tile_cost(c, device.arch, k);

  // Either a unit of the SM is busy all the time, or its blocks wait for themselves: products,
  // softmax, barriers.
  const double busy = std::pow(
      std::pow(cost.tensor * k.tensor, 4) +
          std::pow(cost.shared * k.shared + cost.query * k.shared_query, 4) +
          std::pow(cost.issue * k.issue, 4) + std::pow(cost.exponentials, 4) + std::pow(cost.l2, 4),
      0.25);
  const double own_clocks = cost.tensor + cost.softmax * k.softmax +
                            100.0 * (c.block_n / c.step_n) + k.wait * (c.stages == 1 ? 2 : 1) +
                            (c.head_dim_warps > 1 ? kExchange : 0) + cost.query * k.query_wait;
  if (has_few_rows(problem) && problem.batch > 0 && problem.seqlen_q > 0)
    return c.low_bits()
               ? low_bits_us(c, problem, device, cost, own_clocks, resident_blocks, splits, source,
                             k)
               : few_rows_us(c, problem, device, cost, own_clocks, resident_blocks, splits, k);
  const double serial = own_clocks / resident_blocks;
  const double uncovered = (own_clocks - k.covered * cost.tensor) / resident_blocks;
  const double clocks_per_tile = std::max(busy, serial) +
                                 k.unoverlapped * std::min(busy, uncovered);

  const double heads = double(problem.batch) *
                       double(c.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  const double clocks = visited_keys(problem, c.block_m, c.pack_gqa, c.block_n).all *
                            listed_share(problem, c.block_m) * heads * clocks_per_tile +
                        double(query_tiles(problem, c.block_m, c.pack_gqa)) * splits *
                            k.tile_start / resident_blocks;

  // The last round of blocks leaves SMs idle; under masks the light tiles fill most of it if they
  // come last.
  TileOrder order = tile_order(problem, c.block_m, c.pack_gqa, c.head_group_mb, later_see_more(c));
  order.heads *= splits;
  double idle = idle_factor(order, double(device.num_sms) * resident_blocks);
  if (!later_see_more(c) && c.head_group_mb != 0)
    idle *= 1.05;  // groups only spread the reads of L2
  return clocks * idle / device.num_sms / device.sm_clock_mhz / k.clock +
         combine_us(problem, splits, device);
}

}  // namespace attnforge
