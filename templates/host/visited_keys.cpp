// visited_keys.cpp - the host's counterpart of pieces/range_walk.cuh, summed over a head. The cost
// does not grow with the lengths: where bounds move with the query tiles, the number of tiles
// repeats itself after a period, but for what it rises or falls by.
#include "templates/host/visited_keys.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "generator/user_code/mask_windows.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

std::int64_t tiles_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }  // a >= 0

/// The sum of `start`, start + step, ..., `count` of them.
double sum_of(double start, double step, std::int64_t count) {
  return double(count) * start + step * (double(count) * double(count - 1) / 2);
}

/// The sum with each term at most `most`.
double sum_of_at_most(double start, double step, std::int64_t count, double most) {
  if (step < 0) return sum_of_at_most(start + step * double(count - 1), -step, count, most);
  if (step == 0) return double(count) * std::min(start, most);
  const double below = std::ceil((most - start) / step);
  const std::int64_t few = below <= 0 ? 0 : std::min(count, std::int64_t(below));
  return sum_of(start, step, few) + double(count - few) * most;
}

/// One head. Positions are in units of 1 / pack rows, so that they are whole.
struct Head {
  std::int64_t rows, keys;        // of all queries, all keys
  std::int64_t block_m, block_n;  // from tile to tile
  std::int64_t to_end, to_begin;  // from a position among queries to one among keys
  bool bounded_right, bounded_left;
  double most_masked;  // tiles of a query tile that need a mask

  std::int64_t end(std::int64_t tile) const {
    if (!bounded_right) return keys;
    return std::min(keys, std::min((tile + 1) * block_m, rows) + to_end);
  }
  std::int64_t begin(std::int64_t tile) const {
    return bounded_left ? std::max<std::int64_t>(0, tile * block_m + to_begin) : 0;
  }
  /// 0 or less: the query tile sees nothing.
  std::int64_t tiles(std::int64_t tile) const {
    const std::int64_t from = begin(tile), to = end(tile);
    return to <= from ? 0 : tiles_of(to, block_n) - from / block_n;
  }
};

/// Adds query tiles `first` to `last` - 1, over which each bound either moves by block_m from tile
/// to tile, or stands still.
void add(const Head& head, std::int64_t first, std::int64_t last, VisitedKeys& sum) {
  if (first >= last) return;
  // Query tiles until their rows begin at the same place of a key tile again.
  const std::int64_t period = std::lcm(head.block_m, head.block_n) / head.block_m;
  const std::int64_t seen = std::min(period, last - first);
  for (std::int64_t tile = first; tile < first + seen; ++tile) {
    const std::int64_t count = (last - tile + period - 1) / period;
    const double start = double(head.tiles(tile));
    const double step = count > 1 ? double(head.tiles(tile + period)) - start : 0;
    sum.all += sum_of(start, step, count);
    sum.masked += sum_of_at_most(start, step, count, head.most_masked);
  }
}

}  // namespace

VisitedKeys visited_keys(const Problem& problem, int block_m, int pack, int block_n,
                         bool begins_early) {
  const KeyBounds bounds = key_bounds(problem);
  const std::int64_t offset = problem.seqlen_kv - problem.seqlen_q;
  const int sides = bounds.right.has_value() + bounds.left.has_value();
  const std::int64_t rows = problem.seqlen_q * pack, count = tiles_of(rows, block_m);
  const int early = begins_early
                        ? early_rows(int(rows), int(offset + bounds.right.value_or(0)), block_m)
                        : 0;
  const Head head{.rows = rows + early,
                  .keys = problem.seqlen_kv * pack,
                  .block_m = block_m,
                  .block_n = std::int64_t{block_n} * pack,
                  .to_end = (offset + bounds.right.value_or(0)) * pack - early,
                  .to_begin = (offset - bounds.left.value_or(0)) * pack - early,
                  .bounded_right = bounds.right.has_value(),
                  .bounded_left = bounds.left.has_value(),
                  .most_masked = sides * (double(block_m) / pack / block_n + 0.5)};
  // The first tile for which position + `to` is at least `limit`.
  const auto first_at = [&](std::int64_t limit, std::int64_t to) {
    const std::int64_t missing = limit - to;
    return missing <= 0 ? 0 : std::min(count, tiles_of(missing, block_m));
  };
  // Where a bound begins or ceases to move; the last tile may be a part of one.
  std::int64_t cuts[] = {0,
                         head.bounded_right ? first_at(1, head.to_end + block_m) : 0,
                         head.bounded_right ? first_at(head.keys, head.to_end + block_m) : 0,
                         head.bounded_left ? first_at(0, head.to_begin) : 0,
                         std::max<std::int64_t>(0, count - 1),
                         count};
  std::sort(std::begin(cuts), std::end(cuts));
  VisitedKeys sum;
  for (std::size_t i = 0; i + 1 < std::size(cuts); ++i) add(head, cuts[i], cuts[i + 1], sum);
  return sum;
}

double listed_share(const Problem& problem, int block_m) {
  if (!has_block_mask(problem)) return 1.0;
  const double density = problem.density > 0 ? problem.density : 0.5;
  // Groups are gathered, so only blocks above one another count.
  const double rows = std::max(1.0, double(block_m) / problem.mask_block_q);
  return 1.0 - std::pow(1.0 - density, rows);
}

void keep_listed(VisitedKeys& tiles, const Problem& problem, int block_m) {
  tiles.all *= listed_share(problem, block_m);
  // Rows of smaller blocks see different ones: the tile asks of each row.
  if (has_block_mask(problem) && problem.mask_block_q < block_m) tiles.masked = tiles.all;
}

bool tiles_are_equal(const Problem& problem) {
  constexpr std::int64_t kMoreKeys = 8;
  const KeyBounds bounds = key_bounds(problem);
  return !shape_of(problem).has_key_lists() && !bounds.left &&
         (!bounds.right || problem.seqlen_kv >= kMoreKeys * problem.seqlen_q);
}

bool rows_see_alike(const Problem& problem, int block_m) {
  return has_block_mask(problem) && problem.mask_block_q <= block_m;
}

bool may_have_own_lists(const Shape& shape, const Problem& problem, const DeviceFacts& device) {
  constexpr int kMostRows = 192, kMostBlocksPerSm = 3;  // of a tile, of what is searched
  return device.arch.wgmma && shape.may_list_alone() &&
         query_tiles(problem, kMostRows) <= std::int64_t{device.num_sms} * kMostBlocksPerSm;
}

}  // namespace attnforge
