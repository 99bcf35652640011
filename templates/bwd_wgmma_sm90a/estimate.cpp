// estimate.cpp - the model behind the order of candidates: what a block does for one query tile, by
// unit of an SM. Fitted to counters of head_dim 64 and 128 on an H200.
#include "templates/bwd_wgmma_sm90a/estimate.h"

#include <algorithm>
#include <cmath>

#include "generator/shape.h"
#include "generator/user_code/mask_windows.h"
#include "templates/backward/host.h"
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
constexpr double kBlockStart = 3500;  // K and V come, dK and dV go
constexpr double kBlockStartColumns = 12000;
// Shares of that, where the next K and V come while dK and dV go. In any order less is gained, and
// nothing under a mask: the next block's loads are under way as well when a block ends.
constexpr double kNextTile = 0.3, kNextTileInAnyOrder = 0.8;
// Where the producer spills; up to 7% faster all the same, which tuning finds.
constexpr double kSpills = 1.05;
constexpr double kTurn = 3300;  // from one block's turn at a tile to the next one's
// What waiting for turns takes, of all: with several heads at a time, and where all blocks are of
// one; under a mask, and there in persistent blocks, which are faster than their parts.
constexpr double kInOrder = 1.06, kInOrderOfAHead = 1.25, kInOrderMasked = 1.1,
                 kInOrderPersistent = 0.945;
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
// The same of packed sequences, of which the longest is longer than what is usual, and which may
// have half of their bucket's tokens.
constexpr double kOfPacked = 3.8;
// Of the heaviest block of packed sequences, whose order is their own, what comes after most others
// have ended: with all heads at once, and more where a head's blocks all come after another's.
constexpr double kLateHeaviest = 0.08, kLateOfLastHead = 0.4;

// What waiting for turns adds to the heaviest block of packed sequences, with which all ends.
constexpr double kInOrderHeaviest = 1.4;
// Blocks of fewer heads share less of what they read: for each doubling of the shares.
constexpr double kTwiceTheShares = 0.04;

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
  const double busy = std::pow(
      std::pow(products, 4) + std::pow(smem, 4) + std::pow(exponentials, 4) + std::pow(issue, 4),
      0.25);
  // One buffer where two would hide a load or a barrier.
  const int single = (c.do_stages == 1) + (c.ds_stages == 1);
  return busy + (c.late_dq ? kBareLate : kBare) * (exponentials + issue) + 250 * single;
}

/// What blocks lose that are at different query tiles, by which the L2 has more to hold: with heads
/// that share keys much more.
double apart_factor(const BwdWgmmaSm90aConfig& c, const Problem& problem, const TileOrder& order,
                    bool alternate) {
  constexpr double kApart = 1.02, kGroupApart = 1.07, kHeadsBesides = 1.05;
  if (!see_ever_more(c) || c.lengths == kPackedLengths) return 1;
  const bool few = order.m_blocks < kFewKeyTiles;
  if (c.adds_in_order()) return few && order.heads_per_group > 1 ? kHeadsBesides : 1;
  if (alternate || few) return 1;
  return GroupShares::of(problem, c.group_splits).heads > 1 ? kGroupApart : kApart;
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
  const double blocks = double(order.m_blocks) * order.heads;
  const double of_tile = c.adds_in_order() ? std::max(tile_clocks(c), kTurn) : tile_clocks(c);
  double start = c.split_columns ? kBlockStartColumns : kBlockStart;
  if (c.persistent() && c.adds_in_order())
    start *= kNextTile;
  else if (c.persistent() && !c.spares_registers())
    start *= kSpills;
  else if (c.persistent())
    start *= later_see_more(c) ? 1 / kNextTileInAnyOrder : kNextTileInAnyOrder;
  double clocks = (tiles.all * of_tile + blocks * start) / device.num_sms;
  const bool packed = c.lengths == kPackedLengths;
  const GroupShares shares = GroupShares::of(problem, c.group_splits);
  const double heaviest = (packed ? kOfPacked : kOfBucket) *
                          (packed && c.adds_in_order() ? kInOrderHeaviest : 1.0) *
                          (shares.heads * tiles.most * of_tile + start);
  if (packed) {
    clocks += heaviest * (kLateHeaviest + kLateOfLastHead / order.heads_per_group);
  } else {
    TileOrder heaviest_first = order;
    heaviest_first.heavy_last = later_see_more(c);  // in name: under such masks the light tiles end
    clocks *= idle_factor(heaviest_first, device.num_sms);
  }
  clocks = std::max(clocks, heaviest);
  if (c.adds_in_order() && later_see_more(c))
    clocks *= c.persistent() ? kInOrderPersistent : kInOrderMasked;
  if (c.dq == kDqInOrder) clocks *= order.heads_per_group > 1 ? kInOrder : kInOrderOfAHead;
  if (c.dq_stages > 1) clocks *= c.persistent() ? kTwoDqStagesPersistent : kTwoDqStages;
  if (!c.split_columns && c.block_m > 64 && c.dq_blocks() > 1) clocks *= kManyRows;
  if (c.late_dq == kDvFirst && !c.adds_in_order()) clocks *= kDvBeforeDq;
  clocks *= apart_factor(c, problem, order, alternate);
  clocks *= 1 + kTwiceTheShares * std::log2(shares.count);
  return clocks / device.sm_clock_mhz;
}

}  // namespace attnforge
