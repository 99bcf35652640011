#include "tuner/oracle_rows.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <utility>

#include "reference/sequences.h"
#include "reference/visible.h"

namespace attnforge {
namespace {

constexpr std::int64_t kRangeRows = 8;
constexpr std::size_t kRangesLeast = 4, kRangesMost = 96;
constexpr double kElementsMost = 1e6;
constexpr double kFlopsPerSm = 50e-3 * 1e12 / 132;

double elements(const Problem& problem, const RowRange& range) {
  return static_cast<double>(range.batch_end - range.batch_begin) *
         static_cast<double>(problem.num_heads_q) *
         static_cast<double>(range.row_end - range.row_begin) * problem.head_dim_v;
}

std::int64_t below(std::int64_t end, std::mt19937_64& random) {
  return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
}

/// The i-th place to look at: where rows go wrong, which is at ends and at edges of tiles of any
/// usual size, then anywhere.
std::int64_t begin_to_compare(std::int64_t seqlen, std::size_t i, std::mt19937_64& random) {
  constexpr std::int64_t kTiles[] = {64, 80, 96, 112, 176};
  const std::int64_t last_begin = std::max<std::int64_t>(0, seqlen - kRangeRows);
  if (i == 0) return 0;
  if (i == 1) return last_begin;
  const std::size_t tile = i - 2;
  if (tile < std::size(kTiles) && seqlen >= kTiles[tile]) {
    const std::int64_t edge = below(seqlen / kTiles[tile], random) + 1;
    return std::min(edge * kTiles[tile] - kRangeRows / 2, last_begin);
  }
  return below(last_begin + 1, random);
}

/// Ranges of rows that are chosen as far as the bounds allow.
class ChosenRanges {
 public:
  ChosenRanges(const Problem& problem, double flops_most)
      : problem_(problem), flops_left_(flops_most) {}

  /// Rows of one sequence, which is `one` by itself. False: that would be too many.
  bool add(const Problem& one, const RowRange& range) {
    if (std::find(ranges_.begin(), ranges_.end(), range) != ranges_.end()) return true;
    elements_left_ -= elements(problem_, range);
    flops_left_ -= flops(one, RowRange{0, 1, range.row_begin, range.row_end});
    if (ranges_.size() >= kRangesLeast && (elements_left_ < 0 || flops_left_ < 0)) return false;
    ranges_.push_back(range);
    return true;
  }
  std::vector<RowRange> take() { return std::move(ranges_); }

 private:
  const Problem& problem_;
  std::vector<RowRange> ranges_;
  double elements_left_ = kElementsMost, flops_left_;
};

/// All of each sequence.
std::vector<RowRange> whole_sequences(const Sequences& sequences) {
  std::vector<RowRange> ranges;
  for (std::int64_t i = 0; i < sequences.problem.batch; ++i) {
    const std::int64_t rows = problem_of_sequence(sequences, i).seqlen_q;
    if (rows > 0) ranges.push_back({i, i + 1, 0, rows});
  }
  return ranges;
}

}  // namespace

double flops(const Problem& problem, const RowRange& range) {
  std::int64_t pairs = 0;
  for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
    const KeyRange keys = visible_keys(problem, row);
    pairs += std::max<std::int64_t>(0, keys.last - keys.first + 1);
  }
  return 2.0 * effective_density(problem) * static_cast<double>(pairs) *
         (problem.head_dim + problem.head_dim_v) *
         static_cast<double>((range.batch_end - range.batch_begin) * problem.num_heads_q);
}

std::vector<ListedRow> listed(const std::vector<RowRange>& ranges, int group) {
  std::vector<ListedRow> rows;
  for (const RowRange& range : ranges) {
    for (std::int64_t batch = range.batch_begin; batch < range.batch_end; ++batch) {
      for (std::int64_t row = range.row_begin; row < range.row_end; ++row)
        rows.push_back({static_cast<int>(batch), static_cast<int>(row)});
      while (rows.size() % static_cast<std::size_t>(group) != 0) rows.push_back(rows.back());
    }
  }
  return rows;
}

std::vector<RowRange> rows_to_compare(const Sequences& sequences, const DeviceFacts& device,
                                      unsigned seed) {
  const Problem& problem = sequences.problem;
  if (problem.batch == 0 || problem.seqlen_q == 0) return {};
  const double flops_most = kFlopsPerSm * std::max(device.num_sms, 1);
  const RowRange whole{0, problem.batch, 0, problem.seqlen_q};
  if (elements(problem, whole) <= kElementsMost && flops(sequences) <= flops_most) {
    if (all_full(problem)) return {whole};
    return whole_sequences(sequences);
  }

  std::mt19937_64 random(seed);
  ChosenRanges chosen(problem, flops_most);
  for (std::size_t i = 0; i < kRangesMost; ++i) {
    std::int64_t batch = below(problem.batch, random);
    if (i == 0) batch = 0;
    if (i == 1) batch = problem.batch - 1;
    const Problem one = problem_of_sequence(sequences, batch);
    if (one.seqlen_q == 0) continue;
    const std::int64_t begin = begin_to_compare(one.seqlen_q, i, random);
    if (!chosen.add(one, {batch, batch + 1, begin, std::min(begin + kRangeRows, one.seqlen_q)}))
      break;
  }
  return chosen.take();
}

}  // namespace attnforge
