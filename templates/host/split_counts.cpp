#include "templates/host/split_counts.h"

#include <algorithm>
#include <cmath>

#include "generator/problem/bucket.h"
#include "generator/tensors/stored_rows.h"
#include "templates/host/fwd_params.h"
#include "templates/host/memory_time.h"
#include "templates/host/visited_keys.h"

namespace attnforge {
namespace {

constexpr int kRowsOfWarpgroup = 64;
constexpr double kMostWaves = 2;      // of blocks that split keys
constexpr int kSplitsOfFullGrid = 4;  // of a sequence of mean length, where others are unequal
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;  // of partial results, in a search

double tiles_of_all(const Problem& problem, const QueryTiling& tiling) {
  return double(query_tiles(problem, tiling.block_m, tiling.pack_gqa));
}

std::int64_t kv_bytes(const Problem& problem) {
  return problem.batch * problem.num_heads_kv * problem.seqlen_kv * key_bytes(problem);
}

/// What a batch_invariant config gives each sequence: splits for half of the SMs where it is
/// alone, or fewer where merging so many took more than a sixteenth of the time to read its keys,
/// which is what counts in a large batch.
double least_of_every_batch(const Problem& typical, double busy_alone) {
  constexpr double kMostMerged = 1.0 / 16;
  const double bytes_of_split = 2.0 * double(partial_bytes(typical, 1));  // written and read
  return std::min(busy_alone, kMostMerged * double(kv_bytes(typical)) / bytes_of_split);
}

/// Splits, no fewer than were measured, with which blocks end soonest whose products take the time:
/// in waves that are full.
int splits_of_whole_waves(int measured, double tiles, double key_tiles, double places) {
  constexpr double kBegin = 2,  // what a block takes beside its key tiles, in these
      kSooner = 0.95;           // what was measured is left for no less
  const auto time = [&](int splits) {
    return std::ceil(tiles * splits / places) * (std::ceil(key_tiles / splits) + kBegin);
  };
  int best = measured;
  for (int splits = measured + 1; splits <= std::min<double>(key_tiles, kMostSplits); ++splits) {
    if (tiles * splits > kMostWaves * places) break;
    if (time(splits) < kSooner * time(best)) best = splits;
  }
  return best;
}

/// To merge so many results of each of so many rows.
double merge_us(const Problem& problem, double rows, double results, const DeviceFacts& device) {
  constexpr double kStepUs = 2.5;  // its launch overlaps; it waits for the last block, then reads
  // A warp has a row at a time, for so long beside its reads.
  constexpr double kRowUs = 3, kWarpsOfSm = 48;
  const double bytes = rows * results * double(partial_row_bytes(problem));
  const double bytes_per_us = peak_bytes_per_us(device);
  // Written and read; blocks of more rows than a warpgroup has all write at their end.
  const double times = problem.seqlen_q * gqa_group(problem) <= kRowsOfWarpgroup ? 2 : 4;
  return kStepUs + kRowUs * rows / (kWarpsOfSm * device.num_sms) +
         times * bytes / std::max(bytes_per_us, 1.0);
}

}  // namespace

int split_smem_bytes(const Shape& shape, bool shares) {
  const int which = shares ? 32 : 16;
  return which + (shares || shape.lengths == kUsedLengths ? 4 * kMostSequencesOfSplits : 0);
}

double places_of(const QueryTiling& tiling, const DeviceFacts& device) {
  return double(device.num_sms) * blocks_of_sm(tiling, device.arch);
}

int splits_of_equal(double tiles, int most, double places) {
  constexpr double kStart = 0.03;  // of a round's time
  const auto time = [&](int splits) {
    const double rounds = std::max(tiles, 1.0) * splits / places;
    return std::ceil(rounds) / rounds * (splits == 1 ? 1 : 1 + kStart * std::ceil(rounds));
  };
  int best = 1;
  double least = time(best);
  for (int splits = 2; splits <= most; ++splits)
    if (const double each = time(splits); each < least) best = splits, least = each;
  return best;
}

double spread_of(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device) {
  if (tiling.shares) return 1;
  return spread_of_batches(problem, tiles_of_all(problem, tiling) * tiling.num_splits, device) *
         spread_of_rows(problem, tiling.block_m, tiling.pack_gqa,
                        tiles_are_equal(problem) ? places_of(tiling, device) : 1);
}

int results_of_shares(const Problem& problem, const QueryTiling& tiling,
                      const DeviceFacts& device) {
  const double tiles = tiles_of_all(problem, tiling);
  return 1 + static_cast<int>(std::ceil(places_of(tiling, device) / std::max(tiles, 1.0)));
}

int team_of_shares(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device) {
  constexpr std::int64_t kMost = 16, kIdle = 16;
  const bool whole = bytes_of(problem.dtype_k, problem.head_dim) % kMemoryPiece == 0 &&
                     bytes_of(problem.dtype_v, problem.head_dim_v) % kMemoryPiece == 0;
  const std::int64_t heads = problem.num_heads_q / tiling.pack_gqa;
  const auto blocks = std::max(static_cast<std::int64_t>(places_of(tiling, device)),
                               std::int64_t{1});
  const std::int64_t idle = whole ? 0 : blocks / kIdle;
  for (std::int64_t team = std::min(kMost, heads); team > 1; --team)
    if (heads % team == 0 && team <= blocks && blocks % team <= idle) return static_cast<int>(team);
  return 1;
}

bool finishes_tiles(const QueryTiling& tiling) {
  return tiling.shares && tiling.block_m > kRowsOfWarpgroup;
}

Reason wrong_shares(const Problem& problem) {
  if (problem.batch_invariant) return "shares of the keys depend on the batch";
  if (problem.lengths == Lengths::kPacked) return "packed sequences have no shares of their keys";
  if (bucket_batch(problem.batch) > kMostSequencesOfSplits)
    return Reason("the keys of more than {} sequences are not shared out", kMostSequencesOfSplits);
  if (bucket_batch(problem.batch) * bucket_keys(problem.seqlen_q, problem.seqlen_kv) >
      kMostKeysOfSplits)
    return "so many keys are not shared out: their tiles are counted in 32 bits";
  return "";
}

Reason needless_shares(const Problem& problem, const QueryTiling& tiling,
                       const DeviceFacts& device) {
  constexpr double kLeastTiles = 3;  // of keys, that a block has
  constexpr double kMostRounds = 12;
  const double tiles = tiles_of_all(problem, tiling),
               key_tiles = std::ceil(double(problem.seqlen_kv) / tiling.block_n);
  if (tiles * key_tiles < kLeastTiles * places_of(tiling, device))
    return "shares of so few key tiles";
  // All heads that a grid goes through at a time lie together in memory: 15 to 20% faster.
  if (tiles > kMostRounds * device.num_sms)
    return "so many rounds of query tiles end evenly by themselves";
  return "";
}

bool has_unequal_sequences(const Problem& problem) {
  return problem.lengths == Lengths::kUsed && problem.batch > 1 && !problem.batch_invariant &&
         has_few_rows(problem);
}
bool has_unequal_sequences(const Shape& shape, const Problem& typical) {
  return shape.lengths == kUsedLengths && !shape.has_key_lists() && typical.batch > 1 &&
         !typical.batch_invariant && has_few_rows(typical);
}

int splits_of_launch(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device) {
  const int splits = tiling.num_splits;
  // Of packed sequences the batch does not say how many rows have partial results.
  if (splits == 1 || problem.batch <= 0 || problem.batch_invariant ||
      problem.lengths == Lengths::kPacked)
    return splits;
  const double tiles = tiles_of_all(problem, tiling), places = places_of(tiling, device);
  const auto key_tiles = std::max<std::int64_t>(problem.seqlen_kv / tiling.block_n, splits);
  const std::int64_t of_bucket = bucket_batch(problem.batch);
  if (!has_few_rows(problem)) {
    Problem measured = problem;
    measured.batch = of_bucket;
    measured.seqlen_q = bucket_seqlen(problem.seqlen_q);
    if (tiles == tiles_of_all(measured, tiling)) return splits;
    // Windows leave a query tile few of all key tiles.
    const auto rows = double(problem.seqlen_q * tiling.pack_gqa);
    const double visited = visited_keys(problem, tiling.block_m, tiling.pack_gqa, tiling.block_n)
                               .all /
                           std::max(std::ceil(rows / tiling.block_m), 1.0);
    return splits_of_whole_waves(splits, tiles, std::min(visited, double(key_tiles)), places);
  }
  if (tiles * splits >= places) return splits;
  const std::int64_t as_many = splits * of_bucket / problem.batch;
  return static_cast<int>(std::min({as_many, key_tiles, std::int64_t{kMostSplits}}));
}

std::int64_t most_partial_rows(const Problem& problem, const QueryTiling& tiling,
                               const DeviceFacts& device) {
  const std::int64_t rows = partial_rows(problem) * tiling.num_splits;
  if (has_few_rows(problem) || problem.batch_invariant || problem.lengths == Lengths::kPacked)
    return rows;
  return std::max(
      rows, static_cast<std::int64_t>(kMostWaves * places_of(tiling, device)) * tiling.block_m);
}

std::int64_t partial_rows(const Problem& problem) {
  const StoredRows stored = stored_rows(problem);
  return stored.batch * problem.num_heads_q * stored.q;
}

std::int64_t partial_row_bytes(const Problem& problem) {
  return (problem.head_dim_v + 1) * static_cast<std::int64_t>(sizeof(float));
}

std::int64_t partial_bytes(const Problem& problem, int splits) {
  return partial_rows(problem) * splits * partial_row_bytes(problem);
}

Reason wrong_splits(const Problem& problem, int splits, const DeviceFacts& device) {
  if (splits == 1) return "";
  const std::int64_t bytes = partial_bytes(problem, splits);
  if (bytes <= device.memory_bytes) return "";
  return Reason("the partial results of {} splits take {} GB, more than the GPU's memory", splits,
                bytes >> 30);
}

Reason needless_splits(const Problem& problem, const QueryTiling& tiling, const DeviceFacts& device,
                       bool unequal) {
  constexpr double kFewerWaves = 0.85;
  const int splits = tiling.num_splits;
  if (splits == 1) return "";
  if (partial_bytes(problem, splits) > kMostBytes)
    return "the partial results of so many splits do not fit 1 GB";
  if (problem.batch_invariant) return "";  // another batch may need them
  if (splits > (problem.seqlen_kv + tiling.block_n - 1) / tiling.block_n)
    return "more splits than key tiles";
  if (unequal && splits <= kSplitsOfFullGrid) return "";
  const double tiles = tiles_of_all(problem, tiling), places = places_of(tiling, device);
  if (tiles >= places) {
    // Waves of blocks that each has a part of the keys.
    const auto waves = [&](int each) { return std::ceil(tiles * each / places) / each; };
    if (splits > kSplitsOfFullGrid || waves(splits) > kFewerWaves * waves(1))
      return "query tiles fill the GPU without splits";
    return "";
  }
  if (tiles * splits > kMostWaves * places) return "fewer splits fill the GPU twice";
  return "";
}

Axis splits_axis(const Problem& problem, const DeviceFacts& device) {
  constexpr int kMostBlocksPerSm = 4, kLeastKeys = 256, kLeastKeysOfSplit = 128,
                kLeastKeysOfManyRows = 2048,
                kMostRounds = 16;      // of blocks, after which the longest sequence hardly shows
  constexpr double kLeastBusy = 0.45;  // of the SMs: 64 of 132, too
  Axis axis{"num_splits", {1}};
  const Problem typical = typical_problem(problem);
  const bool few = has_few_rows(typical);
  // Partial results of many rows in a batch of any size would fill the memory.
  if (!few && problem.batch_invariant) return axis;
  const int most = few ? kMostBlocksPerSm : 1;
  // Heads of a group share tiles where their queries do not fill them.
  const double packed_rows = double(typical.seqlen_q) * gqa_group(typical);
  const double tiles = double(typical.batch) * double(typical.num_heads_kv) *
                       (few ? 1.0 : std::ceil(packed_rows / 128));
  if (tiles <= 0 || typical.seqlen_kv < (few ? kLeastKeys : kLeastKeysOfManyRows)) return axis;
  if (2 * tiles > most * device.num_sms) {
    if (has_unequal_sequences(problem) && tiles <= kMostRounds * device.num_sms)
      axis = {"num_splits", {1, 2, kSplitsOfFullGrid}};
    else if (few && tiles <= 2 * most * device.num_sms)
      axis = {"num_splits", {1, 2, 3, kSplitsOfFullGrid}};  // for a last wave that is full
    return axis;
  }
  const double fill = device.num_sms / tiles,
               useful = double(typical.seqlen_kv) / kLeastKeysOfSplit;
  const auto busy = [&](double all) { return kLeastBusy * std::min(all, useful); };
  const double least = problem.batch_invariant
                           ? least_of_every_batch(typical, busy(fill * double(typical.batch)))
                           : busy(fill);
  const auto add = [&](double splits) {
    const int whole = static_cast<int>(std::min<double>(splits, kMostSplits));
    if (whole > 1 && whole > least && std::ranges::find(axis.values, whole) == axis.values.end())
      axis.values.push_back(whole);
  };
  for (int blocks = 1; blocks <= most; blocks *= 2) add(std::floor(blocks * fill));
  for (int splits = 2; splits <= 128 && splits <= 2 * most * fill; splits *= 2) add(splits);
  // Products of many rows take the time: what fills the GPU with those of smaller batches of the
  // bucket, too.
  for (const double more : {1.5, 2.0}) add(few ? 0 : std::floor(more * fill));
  return axis;
}

double unequal_factor(const Shape& shape, const Problem& typical, int splits, double rounds) {
  // Of a longest sequence that is under way alone; the longest begin first where they take turns.
  constexpr double kIdle = 0.15, kManyRounds = 4;
  return has_unequal_sequences(shape, typical)
             ? 1 + kIdle / splits / std::max(rounds / kManyRounds, 1.0)
             : 1.0;
}

double combine_us(const Problem& problem, int splits, const DeviceFacts& device) {
  if (splits == 1) return 0;
  return merge_us(problem, double(partial_rows(problem)), splits, device);
}

double combine_shares_us(const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device) {
  if (!finishes_tiles(tiling))
    return combine_us(problem, results_of_shares(problem, tiling, device), device);
  const double tiles = tiles_of_all(problem, tiling), places = places_of(tiling, device);
  const double cut = std::max(std::min(tiles, places), 1.0);
  return merge_us(problem, double(partial_rows(problem)) * cut / std::max(tiles, 1.0),
                  1 + places / cut, device);
}

}  // namespace attnforge
