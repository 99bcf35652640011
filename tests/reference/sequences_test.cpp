// sequences_test.cpp - lengths that only arrays know: where sequences lie, and attention of each as
// of a problem of its own.
#include "reference/sequences.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "attnforge/error.h"
#include "attnforge/host_tensors.h"
#include "reference/likely_lse.h"
#include "reference/visible.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Sequences, ArePackedOneAfterAnother) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=3 num_heads=4:2 seqlen=8:16 tokens=10:20 head_dim=64 lengths=packed causal");
  const int q[] = {0, 3, 3, 10}, kv[] = {0, 16, 17, 20};
  const Sequences sequences{problem, {.lengths = {.q = q, .kv = kv}}};
  EXPECT_NO_THROW(check_sequences(sequences));
  const Problem last = problem_of_sequence(sequences, 2);
  EXPECT_EQ(to_string(last),
            "fwd bf16 batch=1 num_heads_q=4 num_heads_kv=2 seqlen_q=7 seqlen_kv=3 head_dim=64 "
            "head_dim_v=64 causal");
  EXPECT_EQ(place_of(sequences, {2, 1, 4}), (QueryRow{0, 1, 7}));
  EXPECT_EQ(all_rows(sequences).size(), 4u * 10);
  EXPECT_EQ(flops(sequences), flops(problem_of_sequence(sequences, 0)) + flops(last));
}

TEST(Sequences, UseTheFirstRowsOfPaddedTensors) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=1 seqlen=8:16 head_dim=64 lengths=used");
  const int kv[] = {16, 5};
  const Sequences sequences{problem, {.lengths = {.kv = kv}}};
  const Problem second = problem_of_sequence(sequences, 1);
  EXPECT_EQ(second.seqlen_q, 8);
  EXPECT_EQ(second.seqlen_kv, 5);
  EXPECT_EQ(place_of(sequences, {1, 0, 3}), (QueryRow{1, 0, 3}));
}

/// 3 sequences of 21, 0 and 9 keys in pages of 8 of a pool of 6.
struct Paged {
  Problem problem = parse_problem(
      "fwd fp32 batch=3 num_heads=4:2 seqlen=2:24 head_dim=8:16 lengths=used page_size=8");
  std::vector<int> q{2, 2, 2}, kv{21, 0, 9}, table{5, 0, 3, -1, -1, -1, 2, 4, -1};
  Sequences sequences() const {
    return {problem,
            {.lengths = {.q = q.data(), .kv = kv.data()},
             .pages = {.table = table.data(), .stride_batch = 3, .num_pages = 6}}};
  }
};

TEST(Sequences, InPagesAreGathered) {
  const Paged paged;
  for (const Layout layout : {Layout::kBshd, Layout::kBhsd}) {
    Problem problem = paged.problem;
    problem.layout = layout;
    std::vector<float> q(3 * 2 * 4 * 8), k(6 * 8 * 2 * 8), v(6 * 8 * 2 * 16);
    std::iota(v.begin(), v.end(), 0.0f);
    Tensors tensors = contiguous_tensors(problem);
    tensors.q.data = q.data();
    tensors.k.data = k.data();
    tensors.v.data = v.data();
    tensors.lengths = {.kv = paged.kv.data()};
    tensors.pages.table = paged.table.data();
    tensors.pages.num_pages = 6;
    const Sequence last = sequence_of(problem, tensors, 2);
    EXPECT_NO_THROW(validate(last.problem));
    EXPECT_EQ(last.problem.seqlen_kv, 9);
    // Key 8, head 1, element 3 of v: row 0 of page 4.
    const Tensor& found = last.tensors.v;
    const float* const at = static_cast<float*>(found.data) + 8 * found.stride_row +
                            found.stride_head + 3;
    EXPECT_EQ(*at, layout == Layout::kBshd ? 4 * 8 * 32 + 16 + 3 : 4 * 8 * 32 + 8 * 16 + 3);
    EXPECT_EQ(sequence_of(problem, tensors, 1).problem.seqlen_kv, 0);
  }
}

TEST(Sequences, PackedQueriesHaveTheirKeysInPages) {
  Paged paged;
  paged.problem.lengths = Lengths::kPacked;
  paged.q = {0, 2, 2, 3};
  const Sequences sequences = paged.sequences();
  EXPECT_NO_THROW(check_sequences(sequences));
  const Problem last = problem_of_sequence(sequences, 2);
  EXPECT_EQ(last.seqlen_q, 1);
  EXPECT_EQ(last.seqlen_kv, 9);
  EXPECT_EQ(place_of(sequences, {2, 1, 0}), (QueryRow{0, 1, 2}));
  EXPECT_EQ(all_rows(sequences).size(), 4u * 3);
  HostTensors host;
  set_random_sequences(paged.problem, host, 1);
  EXPECT_EQ(host.lengths_q.size(), 4u);
  EXPECT_EQ(host.lengths_kv.size(), 3u);
  paged.kv[1] = 25;
  EXPECT_THROW(check_sequences(paged.sequences()), Error);
}

TEST(Sequences, OfWrongPagesAreRefusedByName) {
  const auto refused = [](Paged paged) -> std::string {
    try {
      check_sequences(paged.sequences());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({}), "");
  Paged paged;
  paged.table[2] = -1;
  EXPECT_THAT(refused(paged), HasSubstr("sequence 0 of 21 keys has page -1 in column 2; it must be "
                                        "from 0 to 5, the pages of the pool (-1 is for columns"));
  paged = {};
  paged.table[7] = 6;
  EXPECT_THAT(refused(paged), HasSubstr("sequence 2 of 9 keys has page 6 in column 1"));
  paged = {};
  paged.kv[1] = 25;
  EXPECT_THAT(refused(paged), HasSubstr("sequence 1 has 25 rows"));
}

TEST(Sequences, RandomPagesAreUsedOnceAndEndWithTheLengths) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=9 num_heads=2 seqlen=3:100 head_dim=16 lengths=used page_size=16");
  HostTensors host;
  set_random_sequences(problem, host, 5);
  set_random_pages(problem, host, 5);
  EXPECT_NO_THROW(check_sequences(sequences_of(problem, host)));
  ASSERT_EQ(host.page_table.size(), 9u * 7);
  std::vector<int> pages;
  for (std::size_t i = 0; i < 9; ++i) {
    for (std::size_t column = 0; column < 7; ++column) {
      const int page = host.page_table[i * 7 + column];
      EXPECT_EQ(page == -1, static_cast<int>(column) * 16 >= host.lengths_kv[i]);
      if (page != -1) pages.push_back(page);
    }
  }
  EXPECT_FALSE(std::ranges::is_sorted(pages));
  std::ranges::sort(pages);
  EXPECT_EQ(std::ranges::adjacent_find(pages), pages.end());
  EXPECT_LT(pages.back(), pages_of_pool(problem));
}

TEST(Sequences, TablesAreNotReadBeyondTheirEnds) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=2 seqlen=16:128 head_dim=16 lengths=used page_size=64");
  HostTensors good;
  set_random_tables(problem, good, 1);
  const auto refused = [&](auto&& change) -> std::string {
    HostTensors host = good;
    change(host);
    try {
      set_random_pages(problem, host, 1);
      check_tables(problem, host);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  using H = HostTensors&;
  EXPECT_EQ(refused([](H) {}), "");
  EXPECT_EQ(refused([](H host) { host.lengths_kv = {128, 0}; }), "");
  for (const int length : {129, 100000, 2147483647, -1}) {
    EXPECT_THAT(refused([&](H host) { host.lengths_kv[1] = length; }),
                HasSubstr(fmt::format("lengths.kv: sequence 1 has {} rows", length)));
  }
  EXPECT_THAT(refused([](H host) { host.lengths_kv.resize(1); }),
              HasSubstr("lengths.kv has 1 numbers in place of 2"));
  EXPECT_THAT(refused([](H host) { host.lengths_q.resize(3); }),
              HasSubstr("lengths.q has 3 numbers in place of 2"));
  // flops() looks at no other sizes before.
  HostTensors host = good;
  host.page_table.resize(3);
  EXPECT_THROW(flops(problem, host), Error);
  host.page_table.resize(5, 0);
  EXPECT_THROW(flops(problem, host), Error);
}

TEST(Sequences, OfWrongArraysAreRefusedByName) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=1 seqlen=8 tokens=12 head_dim=64 lengths=packed");
  const auto refused = [&](std::vector<int> q, std::vector<int> kv) -> std::string {
    try {
      check_sequences(
          {problem, {.lengths = {.q = q.empty() ? nullptr : q.data(), .kv = kv.data()}}});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refused({0, 4, 12}, {0, 8, 9}), "");
  EXPECT_THAT(refused({}, {0, 8, 9}), HasSubstr("lengths.q is null"));
  EXPECT_THAT(refused({1, 4, 12}, {0, 8, 9}), HasSubstr("lengths.q[0]=1 must be 0"));
  EXPECT_THAT(refused({0, 9, 12}, {0, 8, 9}), HasSubstr("sequence 0 has 9 rows"));
  EXPECT_THAT(refused({0, 4, 12}, {0, 8, 7}), HasSubstr("lengths.kv: sequence 1 has -1 rows"));
  EXPECT_THAT(refused({0, 8, 13}, {0, 8, 9}), HasSubstr("lengths.q[2]=13 is more than the 12"));
}

HostTensors random_sequences(const Problem& problem, std::uint64_t seed) {
  HostTensors host;
  set_random_sequences(problem, host, seed);
  return host;
}

TEST(RandomSequences, FillTheTokensWithManyShortSequencesAndOneOfTheLongest) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=16 num_heads=1 seqlen=8192 tokens=16384 head_dim=64 lengths=packed");
  const HostTensors host = random_sequences(problem, 3);
  ASSERT_EQ(host.lengths_q.size(), 17u);
  EXPECT_EQ(host.lengths_q.back(), 16384);
  EXPECT_EQ(host.lengths_q, host.lengths_kv);
  EXPECT_NO_THROW(check_sequences(sequences_of(problem, host)));
  std::vector<int> each(17);
  std::adjacent_difference(host.lengths_q.begin(), host.lengths_q.end(), each.begin());
  std::sort(each.begin() + 1, each.end());
  EXPECT_EQ(each.back(), 8192);
  EXPECT_LT(each[8], 16384 / 16) << "half of them are shorter than the mean";
  EXPECT_EQ(random_sequences(problem, 3).lengths_q, host.lengths_q) << "same seed, same lengths";
  EXPECT_NE(random_sequences(problem, 4).lengths_q, host.lengths_q);
}

TEST(RandomSequences, OfPaddedTensorsAreBetweenAnEighthAndAll) {
  const Problem problem = parse_problem(
      "fwd bf16 batch=50 num_heads=1 seqlen=1:1001 head_dim=64 lengths=used");
  const HostTensors host = random_sequences(problem, 1);
  EXPECT_THAT(host.lengths_kv, testing::Each(testing::AllOf(testing::Ge(126), testing::Le(1001))));
  EXPECT_THAT(host.lengths_kv, testing::Contains(testing::Lt(501)));
  EXPECT_GE(host.lengths_kv.front(), 501) << "one is long, also where it is alone";
  EXPECT_THAT(host.lengths_q, testing::Each(1));
}

/// A problem of lengths against the problems that its sequences are, each in tensors of its own.
TEST(AttentionOfSequences, IsThatOfEachByItself) {
  for (const char* text :
       {"fwd fp32 batch=5 num_heads=4:2 seqlen=20:33 head_dim=16 lengths=packed causal lse",
        "fwd fp32 batch=5 num_heads=4:2 seqlen=20:33 head_dim=16:8 lengths=used window_left=7 lse",
        "fwd fp32 batch=4 num_heads=2 seqlen=20 head_dim=16 lengths=packed layout=packed_qkv"}) {
    SCOPED_TRACE(text);
    test::HostProblem host = test::make_host_problem(parse_problem(text), 5);
    const Problem& problem = host.problem;
    const Tensors tensors = host.tensors();
    const Reference all = reference_attention(problem, tensors);
    std::size_t at = 0;
    for (std::int64_t i = 0; i < problem.batch; ++i) {
      const Sequence one = sequence_of(problem, tensors, i);
      const Reference of_one = reference_attention(one.problem, one.tensors);
      for (std::size_t row = 0; row < of_one.rows.size(); ++row, ++at) {
        EXPECT_EQ(all.rows[at].batch, i);
        EXPECT_EQ(all.lse[at], of_one.lse[row]);
        const auto columns = static_cast<std::size_t>(problem.head_dim_v);
        EXPECT_TRUE(std::equal(&of_one.o[row * columns], &of_one.o[row * columns] + columns,
                               &all.o[at * columns]));
        EXPECT_TRUE(std::isfinite(all.o[at * columns])) << "padding is NaN and must not be read";
      }
    }
    EXPECT_EQ(at, all.rows.size());
  }
}

TEST(Sequences, TransposedOnesSeeWhatTheirKeysAreSeenBy) {
  for (const char* text :
       {"bwd num_heads=4:2 seqlen=7:11 causal", "bwd num_heads=4:2 seqlen=11:7 window_left=3",
        "bwd seqlen=9:6 window_left=2 window_right=4", "bwd seqlen=5:8"}) {
    const Problem p = parse_problem(text);
    const Problem t = transposed({p}).problem;
    EXPECT_EQ(visible_pairs(t), visible_pairs(p)) << text;
    for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
      for (std::int64_t key = 0; key < p.seqlen_kv; ++key) {
        EXPECT_EQ(visible_keys(t, key).contains(query), visible_keys(p, query).contains(key))
            << text << " query " << query << " key " << key;
      }
    }
  }
}

TEST(Sequences, ALikelyLseIsThatOfTheKeysThatARowSees) {
  const Problem p = parse_problem("bwd num_heads=2 seqlen=6:4 causal");
  HostTensors host;
  set_likely_lse(p, host);
  ASSERT_EQ(host.lse.size(), 12u);
  for (const int head : {0, 1}) {
    EXPECT_EQ(host.lse[6 * head + 0], -INFINITY) << "before the first key";
    EXPECT_EQ(host.lse[6 * head + 1], -INFINITY);
    EXPECT_FLOAT_EQ(host.lse[6 * head + 2], 0.5f);
    EXPECT_FLOAT_EQ(host.lse[6 * head + 5], std::log(4.0f) + 0.5f);
  }
}

TEST(FlopsOfARun, RefuseLengthsThatAreNotThere) {
  const Problem problem = parse_problem("fwd batch=2 seqlen=10 head_dim=64 lengths=packed");
  HostTensors host;
  host.lengths_q = host.lengths_kv = {0, 4, 14};
  EXPECT_GT(flops(problem, host), 0);
  host.lengths_kv = {};
  try {
    flops(problem, host);
    FAIL() << "took them";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
  }
}

}  // namespace
}  // namespace attnforge
