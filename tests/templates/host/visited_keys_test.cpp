// visited_keys_test.cpp - counted tiles of keys against a walk over all query tiles.
#include "templates/host/visited_keys.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>

#include "templates/base_params.h"

namespace attnforge {
namespace {

std::int64_t floor_div(std::int64_t a, std::int64_t b) { return a / b - (a % b < 0); }

/// One query tile after the other, in units of 1 / pack rows.
VisitedKeys walked(const Problem& p, int block_m, int pack, int block_n, bool begins_early) {
  const Window window = effective_window(p);
  const std::int64_t rows = p.seqlen_q * pack, keys = p.seqlen_kv * pack,
                     width = std::int64_t{block_n} * pack;
  const std::int64_t offset = keys - rows;
  const int bounds = (window.right >= 0) + (window.left >= 0);
  VisitedKeys result;
  const std::int64_t early = begins_early
                                 ? early_rows(
                                       int(rows),
                                       int(offset / pack + std::max<std::int64_t>(window.right, 0)),
                                       block_m)
                                 : 0;
  for (std::int64_t first = -early; first < rows; first += block_m) {
    const std::int64_t past = std::min(first + block_m, rows);
    const std::int64_t end = window.right < 0 ? keys
                                              : std::min(keys, past + offset + window.right * pack);
    const std::int64_t begin = window.left < 0
                                   ? 0
                                   : std::max<std::int64_t>(0, first + offset - window.left * pack);
    if (end <= begin) continue;
    const double tiles = double(-floor_div(-end, width) - begin / width);
    result.all += tiles;
    result.masked += std::min(tiles, bounds * (double(block_m) / pack / block_n + 0.5));
  }
  return result;
}

TEST(VisitedKeys, AreThoseOfAWalkOverTheQueryTiles) {
  int compared = 0;
  for (const char* mask :
       {"", " causal", " window_left=0 causal", " window_left=100 causal", " window_left=1000",
        " window_right=50", " window_left=37 window_right=301",
        " window_left=5000 window_right=9"}) {
    for (const char* lengths : {"1:1", "1:777", "300:1", "400:400", "700:64", "64:700", "1200:1200",
                                "513:700", "700:513", "777:0", "0:777"}) {
      const Problem problem = parse_problem("fwd bf16 num_heads=1 seqlen=" + std::string(lengths) +
                                            " head_dim=64" + mask);
      for (const int block_m : {1, 4, 64, 80, 192, 256}) {
        for (const int pack : {1, 3, 7, 8, 64}) {
          for (const int block_n : {8, 64, 96, 176}) {
            for (const bool begins_early : {false, true}) {
              const VisitedKeys found = visited_keys(problem, block_m, pack, block_n, begins_early);
              const VisitedKeys wanted = walked(problem, block_m, pack, block_n, begins_early);
              ASSERT_EQ(found.all, wanted.all) << to_string(problem) << ' ' << block_m << ' '
                                               << pack << ' ' << block_n << ' ' << begins_early;
              ASSERT_NEAR(found.masked, wanted.masked, 1e-9 * (1 + wanted.masked))
                  << to_string(problem) << ' ' << block_m << ' ' << pack << ' ' << block_n;
              ++compared;
            }
          }
        }
      }
    }
  }
  EXPECT_EQ(compared, 8 * 11 * 6 * 5 * 4 * 2);
}

TEST(VisitedKeys, OfLongSequencesCostWhatShortOnesDo) {
  const Problem problem = parse_problem(
      "fwd bf16 num_heads=1 seqlen=134217728 head_dim=64 causal window_left=1000000");
  const auto start = std::chrono::steady_clock::now();
  double sum = 0;
  for (int i = 0; i < 1000; ++i) sum += visited_keys(problem, 16, 3, 64).all;
  EXPECT_GT(sum, 0);
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  EXPECT_LT(elapsed.count(), 5) << "a walk takes half a second each";
}

}  // namespace
}  // namespace attnforge
