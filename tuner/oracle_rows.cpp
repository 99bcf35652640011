#include "tuner/oracle_rows.h"

#include <algorithm>
#include <random>

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

}  // namespace

double flops(const Problem& problem, const RowRange& range) {
  std::int64_t pairs = 0;
  for (std::int64_t row = range.row_begin; row < range.row_end; ++row) {
    const KeyRange keys = visible_keys(problem, row);
    pairs += std::max<std::int64_t>(0, keys.last - keys.first + 1);
  }
  return 2.0 * static_cast<double>(pairs) * (problem.head_dim + problem.head_dim_v) *
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

std::vector<RowRange> rows_to_compare(const Problem& problem, const DeviceFacts& device,
                                      unsigned seed) {
  if (problem.batch == 0 || problem.seqlen_q == 0) return {};
  const double flops_most = kFlopsPerSm * std::max(device.num_sms, 1);
  const RowRange whole{0, problem.batch, 0, problem.seqlen_q};
  if (elements(problem, whole) <= kElementsMost && flops(problem) <= flops_most) return {whole};

  // Where rows go wrong: ends, and edges of tiles of any usual size.
  std::mt19937_64 random(seed);
  const std::int64_t last_begin = std::max<std::int64_t>(0, problem.seqlen_q - kRangeRows);
  std::vector<std::int64_t> begins = {0, last_begin};
  for (std::int64_t tile : {64, 80, 96, 112, 176}) {
    const std::int64_t edges = problem.seqlen_q / tile;
    if (edges == 0) continue;
    const auto edge = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(edges)) + 1;
    begins.push_back(std::min(edge * tile - kRangeRows / 2, last_begin));
  }
  while (begins.size() < kRangesMost) {
    begins.push_back(
        static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(last_begin + 1)));
  }

  std::vector<RowRange> result;
  double elements_left = kElementsMost, flops_left = flops_most;
  for (std::size_t i = 0; i < begins.size(); ++i) {
    std::int64_t batch = static_cast<std::int64_t>(random() %
                                                   static_cast<std::uint64_t>(problem.batch));
    if (i == 0) batch = 0;
    if (i == 1) batch = problem.batch - 1;
    const RowRange range{batch, batch + 1, begins[i],
                         std::min(begins[i] + kRangeRows, problem.seqlen_q)};
    if (std::find(result.begin(), result.end(), range) != result.end()) continue;
    elements_left -= elements(problem, range);
    flops_left -= flops(problem, range);
    if (result.size() >= kRangesLeast && (elements_left < 0 || flops_left < 0)) break;
    result.push_back(range);
  }
  return result;
}

}  // namespace attnforge
