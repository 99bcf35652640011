#include "tuner/oracle_rows.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <set>
#include <utility>
#include <vector>

#include "generator/arch.h"
#include "tuner/oracle.h"

namespace attnforge {
namespace {

/// {batch, query} of each entry.
std::vector<std::pair<int, int>> pairs(const std::vector<ListedRow>& rows) {
  std::vector<std::pair<int, int>> result;
  for (const ListedRow& row : rows) result.emplace_back(row.batch, row.query);
  return result;
}

TEST(ListedRows, GroupsAreOfOneSequenceAndRepeatTheLastRow) {
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(pairs(listed({{1, 3, 4, 9}}, 4)), (Pairs{{1, 4},
                                                     {1, 5},
                                                     {1, 6},
                                                     {1, 7},
                                                     {1, 8},
                                                     {1, 8},
                                                     {1, 8},
                                                     {1, 8},
                                                     {2, 4},
                                                     {2, 5},
                                                     {2, 6},
                                                     {2, 7},
                                                     {2, 8},
                                                     {2, 8},
                                                     {2, 8},
                                                     {2, 8}}));
  EXPECT_EQ(pairs(listed({{0, 1, 8, 12}, {3, 4, 0, 2}}, 4)),
            (Pairs{{0, 8}, {0, 9}, {0, 10}, {0, 11}, {3, 0}, {3, 1}, {3, 1}, {3, 1}}));
  EXPECT_EQ(pairs(listed({{0, 3, 0, 1}}, 1)), (Pairs{{0, 0}, {1, 0}, {2, 0}})) << "decoding";
  EXPECT_TRUE(listed({}, 8).empty());
}

TEST(FlopsOfRows, AddUpToThoseOfTheProblemWhateverTheMask) {
  std::mt19937_64 random(1);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(high - low + 1));
  };
  for (int i = 0; i < 400; ++i) {
    Problem p;
    p.batch = draw(1, 3);
    p.num_heads_kv = draw(1, 2);
    p.num_heads_q = p.num_heads_kv * draw(1, 2);
    p.seqlen_q = draw(1, 40);
    p.seqlen_kv = draw(0, 40);
    p.head_dim = 8;
    p.head_dim_v = 16;
    if (draw(0, 1)) p.window_left = draw(0, 20);
    if (draw(0, 1)) p.window_right = draw(0, 20);
    p.causal = p.window_right <= 0 && draw(0, 1);
    const std::int64_t middle = draw(0, p.seqlen_q);
    EXPECT_EQ(flops(p, {0, p.batch, 0, middle}) + flops(p, {0, p.batch, middle, p.seqlen_q}),
              flops(p))
        << to_string(p);
  }
}

/// It writes fp32, which is a problem of its own.
TEST(OracleSources, AreThereForQueriesOfEachDtype) {
  for (const char* words : {"fp32", "fp16", "bf16 k=int4 v=e5m2 kv_scale=group64",
                            "e4m3 kv_scale=head", "e4m3 fast_sums"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd {} num_heads=2 seqlen=64 head_dim=64", words));
    EXPECT_FALSE(oracle_sources(problem, typical_device("90a")).empty()) << words;
  }
}

TEST(RowsToCompare, SmallProblemsAreComparedWhole) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4 seqlen=333 head_dim=64 causal");
  EXPECT_EQ(rows_to_compare({problem}, typical_device("90a"), 1),
            (std::vector<RowRange>{{0, 2, 0, 333}}));
}

TEST(RowsToCompare, LargeProblemsBySamplesWithinTheBudget) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=4 num_heads=32:8 seqlen=8192 head_dim=128 causal");
  const std::vector<RowRange> sampled = rows_to_compare({problem}, typical_device("90a"), 1);
  ASSERT_GE(sampled.size(), 8u);
  EXPECT_EQ(sampled[0], (RowRange{0, 1, 0, 8}));
  EXPECT_EQ(sampled[1], (RowRange{3, 4, 8184, 8192}));
  double work = 0;
  int edges = 0;
  for (const RowRange& range : sampled) {
    EXPECT_GE(range.row_begin, 0);
    EXPECT_LE(range.row_end, 8192);
    EXPECT_EQ(range.row_end - range.row_begin, 8);
    work += flops(problem, range);
    edges += range.row_begin % 64 == 60;
  }
  EXPECT_LE(work, 60e9);
  EXPECT_GE(edges, 1);
  EXPECT_EQ(rows_to_compare({problem}, typical_device("90a"), 1), sampled)
      << "same seed, same rows";
  EXPECT_NE(rows_to_compare({problem}, typical_device("90a"), 2), sampled);
}

TEST(RowsToCompare, ManySequencesOfOneQuery) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=1024 num_heads=32:8 seqlen=1:4096 head_dim=128");
  const std::vector<RowRange> sampled = rows_to_compare({problem}, typical_device("90a"), 1);
  std::set<std::int64_t> sequences;
  for (const RowRange& range : sampled) sequences.insert(range.batch_begin);
  EXPECT_GE(sequences.size(), 8u);
  EXPECT_EQ(sequences.count(0), 1u);
  EXPECT_EQ(sequences.count(1023), 1u);
}

TEST(RowsToCompare, HugeProblemsStillGetFour) {
  const Problem problem = parse_problem("fwd bf16 num_heads=128 seqlen=1048576 head_dim=256");
  EXPECT_EQ(rows_to_compare({problem}, typical_device("90a"), 1).size(), 4u);
}

TEST(RowsToCompare, EmptyOutputHasNone) {
  const Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=0:64 head_dim=64");
  EXPECT_TRUE(rows_to_compare({problem}, typical_device("90a"), 1).empty());
}

}  // namespace
}  // namespace attnforge
