// estimate.cpp - the model behind the order of candidates: what a block does for one query tile, by
// unit of an SM. Fitted to counters of head_dim 64 and 128 on an H200.
#include "templates/bwd_wgmma_sm90a/estimate.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <vector>

#include "generator/shape.h"
#include "generator/user_code/mask_windows.h"
#include "templates/backward/host.h"
#include "templates/host/memory_time.h"
#include "templates/host/tile_order.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

constexpr double kFmaPerClock = 2048;  // of an SM's tensor cores, 16-bit inputs
constexpr double kSmemBytesPerClock = 128;
constexpr double kExponentialsPerClock = 16;
constexpr double kAddedBytesPerClock = 16;  // to global memory from registers
constexpr double kInstructionsPerScore = 6.5;
// What of the work between products no product hides: warpgroups are at the same place, or a tile
// apart.
constexpr double kBare = 0.55, kBareLate = 0.45;
// K and V come, dK and dV go: what blocks of 512 to 2048 queries take beside their tiles.
constexpr double kBlockStart = 11500;
constexpr double kBlockStartColumns = 12000;
// Shares of that for blocks after an SM's first, where the next K and V come while dK and dV go. In
// any order less is gained, and nothing under a mask: the next block's loads are under way as well
// when a block ends. The producer may spill.
constexpr double kNextTile = 0.58, kNextTileInAnyOrder = 0.87, kNextTileSpills = 0.93;
constexpr double kTurn = 3300;  // from one block's turn at a tile to the next one's
// What waiting for turns takes, of all: with several heads at a time, and where all blocks are of
// one; and under a mask.
constexpr double kInOrder = 1.06, kInOrderOfAHead = 1.25, kInOrderMasked = 1.06;
// What it is worth that a block may be a tile behind its turn; more where it goes on with the next
// key tile.
constexpr double kTwoDqStages = 0.99, kTwoDqStagesPersistent = 0.97;
// Cost of more than 64 rows where dQ has two blocks of columns: as two warpgroups were measured,
// each with one of the blocks and so all rows of dQ, from head_dim 72 to 112.
constexpr double kManyRows = 1.05;
// Cost of dV before dQ, by which dQ is added under fewer products; blocks that wait for turns lose
// nothing.
constexpr double kDvBeforeDq = 1.03;
// Most problems are smaller than the one that stands for their bucket: the heaviest block is more
// of what an SM has to do.
constexpr double kOfBucket = 1.12;
// The same of packed sequences, whose bucket has up to twice their tokens. With 2 groups of heads
// had more shares than paid, 8 to 13% in 5 of 21 problems that an H200 timed with several counts.
constexpr double kOfPacked = 1.5;
// How much of the heaviest block comes after all else where it is as long as all of its group: its
// sequence may be anywhere among them.
constexpr double kLateOfPacked = 0.35;
// A share of one head starts at the diagonal, and reads what no block beside it reads.
constexpr double kLoneHead = 1.1;

/// Clocks in which units that work at the same time are each busy for so many.
double busy_of(std::initializer_list<double> units) {
  double sum = 0;
  for (const double clocks : units) sum += std::pow(clocks, 4);
  return std::pow(sum, 0.25);
}

/// Clocks of the tensor cores, for a tile.
double product_clocks(const BwdWgmmaSm90aConfig& c) {
  const double columns = 2 * round_up(c.head_dim, 16) + 2 * round_up(c.head_dim_v, 16) +
                         c.dq_columns();
  return c.block_m * c.block_n() * columns / kFmaPerClock;
}

/// Clocks of an SM where warpgroups share keys: what they hand each other makes a chain, which is
/// longer than any unit is busy. Fitted at head_dim 160, 192 and 256.
double chain_clocks(const BwdWgmmaSm90aConfig& c) {
  const double m = c.block_m;
  const double adds = c.adds_by_tma() ? 0 : m * c.dq_columns() * 4 / kAddedBytesPerClock;
  return 1000 + 40 * m + 0.27 * product_clocks(c) + 0.2 * adds;
}

/// Clocks of an SM.
double tile_clocks(const BwdWgmmaSm90aConfig& c) {
  if (c.split_columns) return chain_clocks(c);
  const double m = c.block_m, n = c.block_n(), qk = round_up(c.head_dim, 16),
               v = round_up(c.head_dim_v, 16), dq = c.dq_columns();
  const double products = product_clocks(c);
  // Bytes of operands: A of 64 rows and B once for each warpgroup that has the product.
  const double wg = c.warpgroups, bytes = element_bytes(c.dtype);
  const double scores = wg * (64 + m) * (qk + v) * bytes;
  const double sums = wg * m * (qk + v) * bytes;
  const int pairs = c.dq_pairs() ? 2 : 0;  // whose two parts read the same columns of K once
  const double queries = (c.dq_parts() * (64 + c.dq_rows()) - 64 * pairs) * n * bytes;
  const double moved = (m * (qk + v) + m * n) * bytes + (c.adds_by_tma() ? 2 : 1) * m * dq * 4;
  const double smem = (scores + sums + queries + moved) / kSmemBytesPerClock;
  const double exponentials = m * n / kExponentialsPerClock;
  const double issue = m * n * kInstructionsPerScore / 32 / 4;
  const double busy = busy_of({products, smem, exponentials, issue});
  // One buffer where two would hide a load or a barrier.
  const int single = (c.do_stages == 1) + (c.ds_stages == 1);
  return busy + (c.late_dq ? kBareLate : kBare) * (exponentials + issue) + 250 * single;
}

/// What blocks lose that are at different query tiles, by which the L2 has more to hold: with heads
/// that share keys much more, if they are many.
double apart_factor(const BwdWgmmaSm90aConfig& c, const Problem& problem, const TileOrder& order,
                    bool alternate) {
  constexpr double kApart = 1.02, kGroupApart = 1.07, kHeadsBesides = 1.05;
  constexpr int kFewHeads = 2;
  if (!see_ever_more(c) || c.lengths == kPackedLengths) return 1;
  const bool few = order.m_blocks < kFewKeyTiles;
  if (c.adds_in_order()) return few && order.heads_per_group > 1 ? kHeadsBesides : 1;
  if (alternate || few) return 1;
  return GroupShares::of(problem, c.group_splits).heads > kFewHeads ? kGroupApart : kApart;
}

/// Query tiles that a key tile of a head sees.
double seen_by_key_tile(const BwdWgmmaSm90aConfig& c, const Problem& problem,
                        const KeyBounds& bounds, int key_tile) {
  const std::int64_t first_key = std::int64_t{key_tile} * c.block_n(), rows = problem.seqlen_q;
  const std::int64_t at_query_0 = first_key - (problem.seqlen_kv - problem.seqlen_q);
  const std::int64_t begin = bounds.right ? at_query_0 - *bounds.right : 0;
  const std::int64_t end = bounds.left ? at_query_0 + c.block_n() + *bounds.left : rows;
  const std::int64_t first = std::clamp<std::int64_t>(begin, 0, rows) / c.block_m,
                     last = ceil_div(std::clamp<std::int64_t>(end, 0, rows),
                                     std::int64_t{c.block_m});
  return double(std::max<std::int64_t>(last - first, 0));
}

/// place_tile() of tile/tile_order.cuh, which is the GPU's alone.
int key_tile_of(const TileOrder& order, int block) {
  const int of_group = order.heads_per_group * order.m_blocks, group = block / of_group;
  const int heads = std::min(order.heads_per_group, order.heads - group * order.heads_per_group);
  const int tile = (block - group * of_group) / heads;
  return order.heavy_last ? order.m_blocks - 1 - tile : tile;
}

/// How much later the last block ends than if all SMs ended together: SMs take the blocks of an
/// order as they come free. clocks_of(block), of which all have `mean` on the average. Before the
/// last rounds SMs are anywhere in a block.
template <class ClocksOf>
double late_end(const TileOrder& order, int num_sms, double mean, const ClocksOf& clocks_of) {
  constexpr int kRounds = 4;
  const int blocks = order.m_blocks * order.heads;
  const int begin = std::max(0, blocks - kRounds * num_sms);
  std::vector<double> ends(static_cast<std::size_t>(num_sms), 0.0);  // the soonest is the first
  double sum = 0;
  if (begin > 0) {
    for (int i = 0; i < num_sms; ++i) sum += ends[i] = mean * (i + 1) / num_sms;
  }
  for (int block = begin; block < blocks; ++block) {
    const double clocks = clocks_of(block);
    std::pop_heap(ends.begin(), ends.end(), std::greater<>());
    ends.back() += clocks;
    std::push_heap(ends.begin(), ends.end(), std::greater<>());
    sum += clocks;
  }
  return *std::max_element(ends.begin(), ends.end()) - sum / num_sms;
}

/// The same of packed sequences, whose order is their own: `heaviest` block and `group` of heads,
/// in clocks of an SM. The heaviest may come anywhere in the last group, and where it is longer
/// than the group others wait for it all the same.
double late_end_of_packed(double heaviest, double group) {
  if (2 * kLateOfPacked * heaviest <= group) return kLateOfPacked * heaviest * heaviest / group;
  return heaviest - group / (4 * kLateOfPacked);
}

/// Clocks of an SM in which DRAM brings what a query tile of packed sequences reads and adds to, as
/// far as the L2 does not hold it: all rows of a sequence, of the `heads` that are under way.
/// Blocks of one head read the same at about the same time.
double missed_clocks(const BwdWgmmaSm90aConfig& c, const Problem& problem, const SeenTiles& tiles,
                     double heads, const DeviceFacts& device) {
  // Of the L2, where K, V and their gradients pass through as well; of the bandwidth.
  constexpr double kHeld = 0.6, kReached = 0.87;
  const double operands = bytes_of(problem.dtype_q, double(problem.head_dim)) +
                          bytes_of(problem.dtype_o, double(problem.head_dim_v));
  const double sums = c.dq_columns() * 4.0;
  const double held = heads * GroupShares::of(problem, c.group_splits).heads * tiles.most *
                      c.block_m * (operands + sums);
  const double missed = std::max(0.0, 1 - kHeld * double(device.l2_bytes) / std::max(held, 1.0));
  const double together = std::max(1.0, device.num_sms / heads);
  const double bytes_per_clock = kReached * peak_bytes_per_us(device) / device.sm_clock_mhz /
                                 device.num_sms;
  return missed * c.block_m * (operands + 2 * sums) / together / std::max(bytes_per_clock, 1e-3);
}

/// Clocks of a block's start and end, after its SM's first one.
double next_start(const BwdWgmmaSm90aConfig& c, double start) {
  if (!c.persistent()) return start;
  if (c.adds_in_order()) return start * kNextTile;
  if (later_see_more(c)) return start / kNextTileInAnyOrder;
  return start * (c.spares_registers() ? kNextTileInAnyOrder : kNextTileSpills);
}

}  // namespace

SeenTiles SeenTiles::of(const Problem& problem, int block_m, int block_n) {
  const KeyBounds bounds = key_bounds(problem);
  double rows = double(problem.seqlen_q);
  if (bounds.left && bounds.right)
    rows = std::clamp(double(*bounds.left) + double(*bounds.right) + block_n, 0.0, rows);
  // Packed sequences are guessed to be spread between nothing and the longest: the mean square of
  // their lengths is what the mean and the longest have between them.
  const double full = double(problem.batch) * double(problem.seqlen_q);
  const double share = problem.lengths == Lengths::kPacked && full > 0
                           ? std::pow(double(total_tokens(problem).q) / full, 1.5)
                           : 1.0;
  return {visited_keys(problem, block_m, 1, block_n).all * share * double(problem.batch) *
              double(problem.num_heads_q),
          std::ceil(rows / block_m)};
}

double estimate_bwd_wgmma_sm90a_us(const BwdWgmmaSm90aConfig& c, const Problem& problem,
                                   const DeviceFacts& device, const TileOrder& order,
                                   bool alternate) {
  const SeenTiles tiles = SeenTiles::of(problem, c.block_m, c.block_n());
  const GroupShares shares = GroupShares::of(problem, c.group_splits);
  const bool packed = c.lengths == kPackedLengths;
  const double blocks = double(order.m_blocks) * order.heads, sms = device.num_sms;
  if (blocks == 0) return 0;
  double of_tile = c.adds_in_order() ? std::max(tile_clocks(c), kTurn) : tile_clocks(c);
  if (packed) {
    // A head has the blocks of all sequences, which `problem` has apart.
    const double under_way = std::min(double(order.heads_per_group),
                                      double(problem.num_heads_kv) * shares.count);
    of_tile = busy_of({of_tile, missed_clocks(c, problem, tiles, under_way, device)});
  }
  const double start = c.split_columns ? kBlockStartColumns : kBlockStart;
  const double next = next_start(c, start), first = std::min(blocks, sms);
  const double all = tiles.all * of_tile + (blocks - first) * next + first * start;
  const double heaviest = (packed ? kOfPacked : kOfBucket) *
                          (shares.heads * tiles.most * of_tile + start);
  double clocks = all / sms;
  if (packed) {
    clocks += late_end_of_packed(heaviest, clocks * order.heads_per_group / order.heads);
  } else if (later_see_more(c)) {
    const KeyBounds bounds = key_bounds(problem);
    clocks += late_end(order, device.num_sms, all / blocks, [&](int block) {
      const double seen = seen_by_key_tile(c, problem, bounds, key_tile_of(order, block));
      return seen * shares.heads * of_tile + (block < device.num_sms ? start : next);
    });
  } else {
    clocks *= idle_factor(blocks, sms);
    // All blocks of a head begin at one query tile, each a turn after the one before.
    if (c.dq == kDqInOrder) clocks += (ceil_div(problem.seqlen_kv, c.block_n()) - 1.0) * of_tile;
  }
  // A mask may leave a head's longest block of all, and where heads come one after another the last
  // one's is among the last.
  if (has_query_bits(c, problem) && order.heads_per_group == 1)
    clocks += std::max(0.0, heaviest - all / blocks);
  clocks = std::max(clocks, heaviest);
  if (c.adds_in_order() && later_see_more(c)) clocks *= kInOrderMasked;
  if (c.dq == kDqInOrder) clocks *= order.heads_per_group > 1 ? kInOrder : kInOrderOfAHead;
  if (c.dq_stages > 1) clocks *= c.persistent() ? kTwoDqStagesPersistent : kTwoDqStages;
  if (!c.split_columns && c.block_m > 64 && c.dq_blocks() > 1) clocks *= kManyRows;
  if (c.late_dq == kDvFirst && !c.adds_in_order()) clocks *= kDvBeforeDq;
  if (shares.count > 1 && shares.heads == 1) clocks *= kLoneHead;
  clocks *= apart_factor(c, problem, order, alternate);
  return clocks / device.sm_clock_mhz;
}

}  // namespace attnforge
