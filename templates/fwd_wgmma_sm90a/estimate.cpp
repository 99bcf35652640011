// estimate.cpp - the model behind the order of candidates. Its constants are fitted to measurements
// (docs/MEASURING.md says how); what it must get right is the order, not the microseconds.
#include "templates/fwd_wgmma_sm90a/estimate.h"

#include <algorithm>
#include <cmath>

#include "generator/shape.h"
#include "templates/fwd_wgmma_sm90a/fp8_sums.cuh"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/host/part.h"
#include "templates/host/split_counts.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

// Fitted on an H200: 10372 configs over 29 problems, head dims 48 to 256, seqlen 512 to 16384,
// causal and full. Units of the SM per unit of work, in clocks...
constexpr double kTensor = 1.159, kExponential = 0.886, kIssue = 1.571, kLine = 1.511,
                 kUnalignedLine = 2.249, kOperand = 0.287;
// ... and of a warpgroup that waits for itself.
constexpr double kOwnTensor = 0.558, kOwnSoftmax = 0.3925, kOwnWait = 454, kUnoverlapped = 0.6676;
constexpr double kTileStart = 2100, kStorePerColumn = 4.32, kNewBlock = 1722, kQWait = 257,
                 kMask = 0.227;
// The last of three warpgroups waits for its first turn: what of a tile that takes, of values of
// 128 columns and more, by drawn problems with windows or packed rows (drawn_forward.csv) and by
// winners at 1024 tokens. Of fewer columns those at 1024 tokens do take turns.
constexpr double kLastTurn = 0.6;
constexpr double kPingpong = 0.961, kQInRegs = 1.004, kGroup = 1.0075, kTail = 0.205;

// Fitted to 49 full searches on an H200: the end of causal masks and windows, in query tiles that a
// block would have got through; blocks of one SM that get into each other's way; two stages of
// tiles that take less time than a load; two warpgroups with tiles that three could not hold.
constexpr double kWindowTail = 0.03, kSharedSm = 1.23, kShortTile = 1.05, kWideTile = 1.015;
// Short sequences in groups that the L2 does not hold together with their queries.
constexpr double kLargeGroup = 1.07;
// Of the time that an array's tiles take from memory, what nothing hides (mask_tiles.csv), and how
// much more it is where rows are no multiples of 64 bytes, and of three warpgroups.
constexpr double kRows = 0.55, kRaggedRows = 1.4, kRowsOfThree = 1.2;
// Sums of two levels: what a round more over the columns adds, in which the tensor cores wait.
constexpr double kSumRound = 0.3;

// Rows begin at any multiple of 16 bytes, and at that of a piece of memory again after so many.
constexpr int kRowsInTurn = 4;

/// What a block's work on one tile of keys takes of each unit of an SM, in clocks.
struct TileCost {
  double tensor;   // wgmma
  double softmax;  // exponentials or instructions, whichever are slower
  double busy;     // of all units together, working at once
  double rows;     // memory, of an array that scores read by rows
};

/// Rows of K and V, in bytes.
struct RowBytes {
  int k, v;

  explicit RowBytes(const FwdWgmmaSm90aConfig& c)
      : k(bytes_of(c.dtype_k, c.head_dim)), v(bytes_of(c.dtype_v, c.head_dim_v)) {}
  bool multiples_of(int bytes) const { return k % bytes == 0 && v % bytes == 0; }
};

/// Pieces of memory that copies want of four rows that follow one another, a copy for each chunk of
/// columns: what two of them want counts twice.
int pieces_of_rows(int row, int chunk) {
  int pieces = 0;
  for (int begin = 0; begin < kRowsInTurn * row; begin += row)
    for (int at = begin; at < begin + row; at += chunk)
      pieces += ceil_div(std::min(at + chunk, begin + row), kMemoryPiece) - at / kMemoryPiece;
  return pieces;
}
/// How many times as many as with chunks of 128 bytes; 1 where rows have whole pieces, and copies
/// of them share none.
double narrow_chunks(const RowBytes& row, int chunk) {
  if (row.multiples_of(kMemoryPiece)) return 1;
  return double(pieces_of_rows(row.k, chunk) + pieces_of_rows(row.v, chunk)) /
         (pieces_of_rows(row.k, 128) + pieces_of_rows(row.v, 128));
}

TileCost tile_cost(const FwdWgmmaSm90aConfig& c, const DeviceFacts& device) {
  const double fma_per_clock = 4096.0 / element_bytes(c.dtype);
  constexpr double kExponentialsPerClock = 16, kLanesPerClock = 128, kLineBytes = 128,
                   kInstructionsPerScore = 4.5;
  const double scores = double(c.block_m()) * c.block_n;
  const double tensor = scores * (round_up(c.head_dim, 16) + c.head_dim_v) / fma_per_clock;
  const double exponentials = kExponential * scores / kExponentialsPerClock;
  // An element of an array takes two more: to become a float, and to be added.
  const double additions = Fp8Sums{c}.two_levels() ? double(c.head_dim_v) / c.block_n : 0.0;
  const double instructions = kInstructionsPerScore + (c.may_tile_rows() ? 2 : 0) + additions;
  const double issue = kIssue * scores * instructions / kLanesPerClock;
  // TMA reads rows in lines, in which those of odd head dims begin anywhere.
  const RowBytes row(c);
  const double narrow = narrow_chunks(row, c.swizzle);
  const double bytes = narrow == 1 ? c.k_bytes() + c.v_bytes()
                                   : c.block_n * (round_up(row.k, 128) + round_up(row.v, 128));
  const double lines = bytes / kLineBytes * (row.multiples_of(128) ? kLine : kUnalignedLine) *
                       narrow;
  // Its elements come from memory, as a rule: an SM has its share of that.
  const double bytes_per_clock = peak_bytes_per_us(device) / device.sm_clock_mhz / device.num_sms;
  const double rows = c.may_tile_rows() && bytes_per_clock > 0
                          ? c.row_tile_bytes() / bytes_per_clock *
                                (c.block_n * c.row_bytes % 64 == 0 ? 1.0 : kRaggedRows) *
                                (c.warpgroups == 3 ? kRowsOfThree : 1.0)
                          : 0.0;
  // Every warpgroup reads K, V, and Q unless it lies in registers, from shared memory.
  const double operands = kOperand * c.warpgroups * element_bytes(c.dtype) / kLineBytes *
                          ((c.q_in_regs ? 0.0 : 64.0 * c.head_dim) +
                           double(c.block_n) * (c.head_dim + c.head_dim_v));
  const double busy = std::pow(std::pow(kTensor * tensor, 4) + std::pow(exponentials, 4) +
                                   std::pow(issue, 4) + std::pow(lines, 4) + std::pow(operands, 4),
                               0.25);
  return {tensor, std::max(exponentials, issue), busy, rows};
}

/// Of a key tile on an SM. Either a unit of it is busy all the time, or its warpgroups wait for
/// themselves: products, softmax, barriers.
double clocks_per_tile(const FwdWgmmaSm90aConfig& c, const TileCost& cost) {
  const double own = (kOwnTensor * cost.tensor / c.warpgroups +
                      kOwnSoftmax * cost.softmax / c.warpgroups + kOwnWait) /
                     c.blocks_per_sm;
  double clocks = std::max(cost.busy, own) + kUnoverlapped * std::min(cost.busy, own);
  if (Fp8Sums{c}.two_levels())
    clocks *= 1 + kSumRound * (double(c.head_dim_v) / Fp8Sums{c}.columns() - 1);
  if (c.pingpong) clocks *= kPingpong;
  if (c.q_in_regs) clocks *= kQInRegs;
  if (c.blocks_per_sm > 1) clocks *= kSharedSm;
  const int elements = c.block_n * (c.head_dim + c.head_dim_v);
  if (c.k_stages == 2 && c.block_n < 128 && elements <= 64 * 256) clocks *= kShortTile;
  if (c.warpgroups == 2 && c.block_n >= 128) clocks *= kWideTile;
  return clocks + kRows * cost.rows;
}

/// How many times as much as once through the tensors as many reads of key tiles are, of query
/// tiles that come longest first among all heads: what is under way at once shares the keys of a
/// head, and the L2 has forgotten them before the next.
double reads_of_all_heads(const FwdWgmmaSm90aConfig& c, const Problem& problem,
                          const DeviceFacts& device, double key_tiles) {
  const double places = double(device.num_sms) * c.blocks_per_sm;
  const double sharing = std::max(places / double(std::max<std::int64_t>(problem.num_heads_kv, 1)),
                                  double(gqa_group(problem)) / c.pack_gqa);
  const double again = key_tiles * (c.k_bytes() + c.v_bytes()) / sharing;
  return 1 + again / std::max(minimum_bytes(problem), 1.0);
}

/// How many times their bytes decode brings, of rows that are no multiples of 64 bytes. together:
/// what reads the next head reads at the same time, so that a piece of both comes once; else
/// streams of rows that do not lie together cost more than their pieces. Copies that are under way
/// for long share less. Head dims 56 to 248 with 1 to 12 K/V heads on an H200
/// (bench/notebook/decode.md).
double odd_rows(const FwdWgmmaSm90aConfig& c, bool together) {
  constexpr double kApart = 2, kMuchKb = 72, kOfKb = 0.004;
  const RowBytes row(c);
  if (row.multiples_of(kMemoryPiece)) return 1;
  const auto of = [&](int bytes) {
    if (bytes % kMemoryPiece == 0) return double(kRowsInTurn * bytes);
    int cut = 0;  // pieces that two rows have parts of
    for (int i = 1; i < kRowsInTurn; ++i) cut += i * bytes % kMemoryPiece != 0;
    return kMemoryPiece * (pieces_of_rows(bytes, c.swizzle) + (together ? -1 : kApart) * cut);
  };
  const double way_kb = c.block_n * c.blocks_per_sm *
                        (double(c.k_stages) * row.k + double(c.v_stages) * row.v) / 1024;
  return (of(row.k) + of(row.v)) / (kRowsInTurn * (row.k + row.v)) *
         (1 + kOfKb * std::max(way_kb - kMuchKb, 0.0));
}

/// Of query tiles with all their keys, or with a share of them.
double tiles_us(const FwdWgmmaSm90aConfig& c, const Problem& problem, const DeviceFacts& device) {
  const TileCost cost = tile_cost(c, device);
  const double start = (kTileStart + kStorePerColumn * c.head_dim_v + kOwnTensor * cost.tensor +
                        cost.softmax + (c.grid == kGridPlain ? kNewBlock : 0.0) +
                        (c.q_stages == 1 && !c.q_in_regs ? kQWait : 0.0) +
                        (c.pingpong && c.warpgroups == 3 && c.head_dim_v >= 128
                             ? kLastTurn * clocks_per_tile(c, cost)
                             : 0.0)) /
                       c.blocks_per_sm;
  const double heads = double(problem.batch) *
                       double(c.pack_gqa > 1 ? problem.num_heads_kv : problem.num_heads_q);
  const double blocks = double(query_tiles(problem, c.tile_rows(), c.pack_gqa));
  const double places = double(device.num_sms) * c.blocks_per_sm;
  VisitedKeys tiles = visited_keys(problem, c.tile_rows(), c.pack_gqa, c.block_n, c.begins_early());
  keep_listed(tiles, problem, c.block_m());
  const double clocks = heads * (tiles.all * clocks_per_tile(c, cost) +
                                 tiles.masked * kMask * cost.softmax) +
                        blocks * start;

  if (c.grid == kGridShares) {
    // A block has whole tiles of keys, and one query tile more than begin in it.
    const double share = std::max(heads * tiles.all / places, 1e-9);
    return (clocks * std::ceil(share) / share + places * start) / device.num_sms /
           device.sm_clock_mhz;
  }
  // Equal tiles come in whole rounds. Unequal ones are given to whoever is free, the light ones
  // last.
  const double rounds = std::max(blocks / places, 1e-9);
  const bool masked = has_window(c) || c.has_key_lists();
  if (c.has_tile_queue() && !c.has_key_lists()) {
    // Longest first: best among all heads. Of tiles that do not fill the GPU each takes its time.
    const double tail = std::max(1 + kTail / rounds, 1 / rounds);
    const bool all = c.head_group_mb > int(device.l2_bytes >> 21);
    const double us = clocks * tail * (all ? 1.0 : kGroup) / device.num_sms / device.sm_clock_mhz;
    if (!all) return us;
    const double reads = reads_of_all_heads(c, problem, device, heads * tiles.all);
    return with_memory_time(us, problem, device, reads);
  }
  const double tail = c.has_key_lists() ? kTail : kWindowTail;
  double idle = masked && !tiles_are_equal(problem) ? std::max(1 + tail / rounds, 1 / rounds)
                                                    : std::ceil(rounds - 1e-9) / rounds;
  // Heads at a time: short ones in small groups, long ones in large; one by one without a mask.
  const bool many = masked ? c.head_group_mb > 16 : c.head_group_mb > 0;
  if (many != (masked && problem.seqlen_kv > 1024)) idle *= kGroup;
  if (masked && problem.seqlen_kv <= 1024 && c.head_group_mb > 32) idle *= kLargeGroup;
  return clocks * idle / device.num_sms / device.sm_clock_mhz;
}

}  // namespace

QueryTiling tiling_of(const FwdWgmmaSm90aTyped& c) {
  return {.block_m = c.tile_rows(),
          .block_n = c.block_n,
          .pack_gqa = c.pack_gqa,
          .blocks_per_sm = c.blocks_per_sm,
          .num_splits = c.num_splits,
          .shares = c.grid == kGridShares,
          .own_list_groups = c.own_lists ? c.own_list_groups() : 0};
}

double blocks_of(const FwdWgmmaSm90aTyped& c, const Problem& problem) {
  return double(query_tiles(problem, c.tile_rows(), c.pack_gqa)) * c.num_splits;
}

/// Until a step before the kernel has listed the query tiles, where lengths are the device's: 15
/// drawn decode steps on an H200.
double queue_us(const FwdWgmmaSm90aTyped& c, const Problem& problem) {
  if (c.lengths == kFixedLengths || c.has_key_lists()) return 0;
  return tile_source(c, problem, tiling_of(c)) == TileSource::kList ? 4 : 0;
}

double spread_of_fwd_wgmma_sm90a(const FwdWgmmaSm90aTyped& c, const Problem& problem,
                                 const DeviceFacts& device) {
  return spread_of(problem, tiling_of(c), device);
}

double estimate_fwd_wgmma_sm90a_us(const FwdWgmmaSm90aTyped& c, const Problem& problem,
                                   const DeviceFacts& device) {
  if (!c.has_parts() && !has_few_rows(problem))
    return tiles_us(c, problem, device) * spread_of_fwd_wgmma_sm90a(c, problem, device) +
           queue_us(c, problem) + part_steps_us(c, problem, tiling_of(c), device);
  const double reads = reads_us(problem, c.pack_gqa, device);
  const std::int64_t heads = problem.num_heads_q / c.pack_gqa;
  // The first scores wait for a whole tile of keys. This and kFindUs: 101 drawn decode steps.
  constexpr double kFirstUsOfKb = 0.03;
  const double first_us = kFirstUsOfKb * c.k_bytes() / 1024;
  if (c.grid == kGridShares) {
    constexpr double kFindUs = 3;  // a block counts all key tiles before its first load
    // Where shares have several query tiles, the first keys of each come when others are used up,
    // and its rows go out and come in: drawn decode steps of 64 and 112 rows, and of up to 16.
    const double rows = double(std::min<std::int64_t>(problem.seqlen_q * c.pack_gqa, c.block_m()));
    constexpr double kNextRowUs = 0.036, kOneTile = 0.5;
    const double next_tile_us = 2 + kNextRowUs * std::max(rows - 16, 0.0);
    const double rounds = blocks_of(c, problem) / places_of(tiling_of(c), device);
    const double next_us = next_tile_us * std::max(rounds - kOneTile, 0.0);
    const double us = tiles_us(c, problem, device);
    const int team = team_of_shares(problem, tiling_of(c), device);
    const bool together = team > 1 || heads == 1;
    const double together_us = with_memory_time(us, problem, device, odd_rows(c, together));
    return kFindUs + first_us + next_us + std::max(together_us, reads) +
           combine_shares_us(problem, tiling_of(c), device);
  }
  // Splits count as sequences of their own.
  Problem split = problem;
  split.batch *= c.num_splits;
  split.seqlen_kv = (problem.seqlen_kv + c.num_splits - 1) / c.num_splits;
  const double rounds = odd_rows(c, c.num_splits > 1 || heads == 1) *
                        late_readers(problem, blocks_of(c, problem), device);
  constexpr double kAskUs = 2;  // blocks that ask for short tiles wait for the answers
  // Eleven drawn decode steps of 300 to 1100 keys on H200 and H100 took 1.3 to 4.3 us more with
  // splits than fwd_mma_sm80, or than without them, where the model saw them alike.
  constexpr double kSplitUs = 2;
  // A block that comes in the place of another first waits for its lengths and pages.
  constexpr double kNextBlockUs = 1.5;
  const double waves = blocks_of(c, problem) / places_of(tiling_of(c), device);
  const double next_us = c.grid == kGridPlain && c.lengths == kUsedLengths
                             ? kNextBlockUs * std::max(waves - 1, 0.0) / c.blocks_per_sm
                             : 0;
  const double split_us = c.num_splits == 1       ? 0
                          : has_few_rows(problem) ? kSplitUs
                                                  : kSplitUs * std::ceil(waves);
  const double us = tiles_us(c, split, device) + (c.grid == kGridDynamic ? kAskUs : 0) +
                    queue_us(c, problem) + split_us +
                    part_steps_us(c, problem, tiling_of(c), device);
  // What waits for the longest sequence at the end waits for more than the memory.
  return std::max(with_memory_time(us, problem, device, rounds), reads) *
             unequal_factor(
                 c, problem, c.num_splits,
                 blocks_of(c, problem) / c.num_splits / places_of(tiling_of(c), device)) +
         first_us + next_us + combine_us(problem, c.num_splits, device);
}

}  // namespace attnforge
