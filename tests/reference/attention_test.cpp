// attention_test.cpp - the oracle against numbers worked out by hand, and against laws of
// attention.
#include "reference/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include "attnforge/error.h"
#include "reference/half.h"
#include "reference/parts/user_code.h"
#include "reference/sequences.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using test::Gaps;
using test::HostProblem;
using test::Inputs;
using test::make_host_problem;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// An element of q, k or v of a host problem.
struct Element {
  DType dtype;
  void* data;
  std::int64_t index;
  float get() const { return load_element(dtype, data, index); }
  void set(float x) const { store_element(dtype, data, index, x); }
};
Element element(DType dtype, const Tensor& tensor, std::int64_t batch, std::int64_t head,
                std::int64_t row, int column) {
  return {
      dtype, tensor.data,
      batch * tensor.stride_batch + head * tensor.stride_head + row * tensor.stride_row + column};
}

/// One head, fp32, head_dim 8, scale 1 unless `options` has another: q[i] = (q_first[i], 0, ...),
/// k[j] = (k_first[j], 0, ...), v[j] = (v_first[j], 0, ...).
HostProblem one_column(const std::string& options, const std::vector<float>& q,
                       const std::vector<float>& k, const std::vector<float>& v) {
  const std::string scale = options.find("softmax_scale") == options.npos ? " softmax_scale=1" : "";
  const Problem problem = parse_problem(
      "fwd fp32 head_dim=8 batch=1 num_heads=1 seqlen=" + std::to_string(q.size()) + ":" +
      std::to_string(k.size()) + " " + options + scale);
  HostProblem host = make_host_problem(problem, 1);
  const Tensors t = host.tensors();
  const auto fill = [](const Tensor& tensor, const std::vector<float>& first) {
    for (std::size_t row = 0; row < first.size(); ++row) {
      for (int d = 0; d < 8; ++d)
        element(DType::kFp32, tensor, 0, 0, static_cast<std::int64_t>(row), d)
            .set(d == 0 ? first[row] : 0);
    }
  };
  fill(t.q, q), fill(t.k, k), fill(t.v, v);
  return host;
}

/// Column 0 of every row of o.
std::vector<double> first_column(const Reference& reference) {
  std::vector<double> column;
  for (std::size_t i = 0; i < reference.rows.size(); ++i)
    column.push_back(reference.o[i * static_cast<std::size_t>(reference.head_dim_v)]);
  return column;
}

void expect_near(const std::vector<double>& actual, const std::vector<double>& expected,
                 double error = 1e-12) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    if (std::isfinite(expected[i])) {
      EXPECT_NEAR(actual[i], expected[i], error) << "at " << i;
    } else {
      EXPECT_EQ(actual[i], expected[i]) << "at " << i;
    }
  }
}

TEST(ReferenceByHand, TwoKeys) {
  // Scores 0 and log(3): probabilities 1/4 and 3/4.
  const float log3 = std::log(3.0f);
  HostProblem host = one_column("", {1}, {0, log3}, {8, 4});
  const Reference r = reference_attention(host.problem, host.tensors());
  expect_near(first_column(r), {8 * 0.25 + 4 * 0.75}, 1e-6);
  expect_near(r.lse, {std::log(4.0)}, 1e-6);
  EXPECT_NEAR(r.spread[0], std::sqrt(1.0 / 16 + 9.0 / 16), 1e-6);
  EXPECT_NEAR(r.score_magnitude[0], log3, 1e-6);
  EXPECT_EQ(r.max_abs_v, 8);
}

TEST(ReferenceByHand, CausalIsAlignedToTheBottomRight) {
  // Equal scores: each row is the mean of what it sees. 2 queries, 4 keys: the last query sees all
  // four.
  HostProblem host = one_column("causal", {0, 0}, {0, 0, 0, 0}, {1, 2, 3, 10});
  const Reference r = reference_attention(host.problem, host.tensors());
  expect_near(first_column(r), {2, 4});
  expect_near(r.lse, {std::log(3.0), std::log(4.0)});
}

TEST(ReferenceByHand, MoreQueriesThanKeysLeaveRowsThatSeeNothing) {
  HostProblem host = one_column("causal", {5, 5, 5}, {1, 1}, {2, 6});
  const Reference r = reference_attention(host.problem, host.tensors());
  expect_near(first_column(r), {0, 2, 4});
  expect_near(r.lse, {-kInfinity, 5, 5 + std::log(2.0)});
  EXPECT_EQ(r.spread[0], 0);
}

TEST(ReferenceByHand, WindowsCountFromThePosition) {
  const std::vector<float> zero(5, 0.0f), v = {1, 2, 4, 8, 16};
  const auto means = [&](const std::string& options) {
    HostProblem host = one_column(options, zero, zero, v);
    return first_column(reference_attention(host.problem, host.tensors()));
  };
  expect_near(means("window_left=1"), {31.0 / 5, 31.0 / 5, 30.0 / 4, 28.0 / 3, 24.0 / 2});
  expect_near(means("window_right=1"), {1.5, 7.0 / 3, 15.0 / 4, 31.0 / 5, 31.0 / 5});
  expect_near(means("window_left=1 window_right=1"), {1.5, 7.0 / 3, 14.0 / 3, 28.0 / 3, 12});
  expect_near(means("window_left=0 causal"), {1, 2, 4, 8, 16});
}

TEST(ReferenceByHand, SoftcapComesAfterTheScale) {
  HostProblem host = one_column("softcap=2 softmax_scale=0.5", {4}, {1, -3}, {1, 0});
  const double s0 = 2 * std::tanh(1.0), s1 = 2 * std::tanh(-3.0);
  const Reference r = reference_attention(host.problem, host.tensors());
  expect_near(first_column(r), {1 / (1 + std::exp(s1 - s0))});
  expect_near(r.lse, {std::log(std::exp(s0) + std::exp(s1))});
}

TEST(ReferenceByHand, ASinkIsAScoreWithoutAValue) {
  // Neither scaled nor capped, and all of a row that sees no key.
  HostProblem host = one_column("sinks causal softmax_scale=0.5 softcap=1000", {0, 0, 0}, {4, 4},
                                {3, 9});
  Tensors tensors = host.tensors();
  const auto outputs = [&](float sink) {
    tensors.sinks = &sink;
    return reference_attention(host.problem, tensors);
  };
  Reference r = outputs(std::log(2.0f));
  expect_near(first_column(r), {0, 3.0 / 3, 12.0 / 4}, 1e-6);
  expect_near(r.lse, {std::log(2.0), std::log(3.0), std::log(4.0)}, 1e-6);
  EXPECT_NEAR(r.spread[2], std::sqrt(2.0) / 4, 1e-6);
  r = outputs(-std::numeric_limits<float>::infinity());
  expect_near(first_column(r), {0, 3, 6});
  expect_near(r.lse, {-kInfinity, 0, std::log(2.0)});
  r = outputs(1e30f);
  expect_near(first_column(r), {0, 0, 0});
  for (const double lse : r.lse) EXPECT_EQ(lse, double{1e30f});
  tensors.sinks = nullptr;
  EXPECT_THROW(reference_attention(host.problem, tensors), Error);
}

TEST(ReferenceByHand, NoKeysAtAll) {
  const Problem problem = parse_problem("fwd fp16 batch=1 num_heads=2 seqlen=3:0 head_dim=16");
  HostProblem host = make_host_problem(problem, 1);
  const Reference r = reference_attention(problem, host.tensors());
  EXPECT_EQ(r.rows.size(), 6u);
  for (const double x : r.o) EXPECT_EQ(x, 0);
  for (const double x : r.lse) EXPECT_EQ(x, -kInfinity);
}

TEST(ReferenceByHand, NothingToDo) {
  for (const char* text : {"fwd batch=0 num_heads=2 seqlen=3 head_dim=16",
                           "fwd batch=1 num_heads=2 seqlen=0:3 head_dim=16"}) {
    EXPECT_TRUE(reference_attention(parse_problem(text), Tensors{}).rows.empty()) << text;
  }
}

TEST(ReferenceByHand, HeadsShareKeysInGroups) {
  // Each key/value head holds its own number; so does the output of the query heads that read it.
  const Problem problem = parse_problem("fwd fp32 batch=2 num_heads=6:3 seqlen=4 head_dim=8");
  HostProblem host = make_host_problem(problem, 1);
  const Tensors t = host.tensors();
  for (int batch = 0; batch < 2; ++batch) {
    for (int head = 0; head < 3; ++head) {
      for (int key = 0; key < 4; ++key) {
        for (int d = 0; d < 8; ++d)
          element(DType::kFp32, t.v, batch, head, key, d)
              .set(static_cast<float>(10 * batch + head));
      }
    }
  }
  const Reference r = reference_attention(problem, t);
  for (std::size_t i = 0; i < r.rows.size(); ++i) {
    EXPECT_NEAR(r.o[i * 8], static_cast<double>(10 * r.rows[i].batch + r.rows[i].head / 2), 1e-12);
  }
}

TEST(ReferenceByHand, ScoresOfMinusInfinityCountAsUnseen) {
  constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
  HostProblem some = one_column("", {1}, {kMinusInfinity, 0, 0}, {100, 1, 3});
  for (const Tensor& tensor : {some.tensors().q, some.tensors().k}) {
    for (int d = 1; d < 8; ++d) element(DType::kFp32, tensor, 0, 0, 0, d).set(1);
  }
  expect_near(first_column(reference_attention(some.problem, some.tensors())), {2});
  HostProblem all = one_column("", {1}, {kMinusInfinity}, {100});
  const Reference r = reference_attention(all.problem, all.tensors());
  expect_near(first_column(r), {0});
  expect_near(r.lse, {-kInfinity});
}

TEST(ReferenceByHand, NanStaysInTheRowsThatSeeIt) {
  HostProblem host = one_column("causal", {1, 1, 1}, {0, 0, std::nanf("")}, {1, 3, 5});
  const Reference r = reference_attention(host.problem, host.tensors());
  expect_near({r.o[0], r.o[8]}, {1, 2});
  EXPECT_TRUE(std::isnan(r.o[16]));
  EXPECT_TRUE(std::isnan(r.lse[2]));
}

// ---- Laws ----

TEST(ReferenceLaws, EqualScoresGiveTheMeanOfV) {
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=5:37 head_dim=24:40");
  HostProblem host = make_host_problem(problem, 3, Inputs::kEqualScores);
  const Tensors t = host.tensors();
  const Reference r = reference_attention(problem, t);
  for (int d = 0; d < 40; ++d) {
    double sum = 0;
    for (int key = 0; key < 37; ++key) sum += element(DType::kBf16, t.v, 0, 0, key, d).get();
    for (std::size_t row = 0; row < 5; ++row)
      EXPECT_NEAR(r.o[row * 40 + static_cast<std::size_t>(d)], sum / 37, 1e-12);
  }
  for (std::size_t row = 0; row < 5; ++row) {
    EXPECT_NEAR(r.lse[row], std::log(37.0), 1e-12);
    EXPECT_NEAR(r.spread[row], 1 / std::sqrt(37.0), 1e-12);
  }
}

TEST(ReferenceLaws, OrderOfKeysDoesNotMatter) {
  const Problem problem = parse_problem("fwd fp16 batch=1 num_heads=1 seqlen=7:50 head_dim=16");
  HostProblem host = make_host_problem(problem, 4);
  const Reference before = reference_attention(problem, host.tensors());
  std::vector<int> order(50);
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), std::mt19937(5));
  HostProblem shuffled = make_host_problem(problem, 4);
  const Tensors from = host.tensors(), to = shuffled.tensors();
  for (int key = 0; key < 50; ++key) {
    for (int d = 0; d < 16; ++d) {
      element(DType::kFp16, to.k, 0, 0, key, d)
          .set(element(DType::kFp16, from.k, 0, 0, order[static_cast<std::size_t>(key)], d).get());
      element(DType::kFp16, to.v, 0, 0, key, d)
          .set(element(DType::kFp16, from.v, 0, 0, order[static_cast<std::size_t>(key)], d).get());
    }
  }
  const Reference after = reference_attention(problem, to);
  expect_near(after.o, before.o);
  expect_near(after.lse, before.lse);
}

TEST(ReferenceLaws, TheSameVectorAddedToEveryKeyShiftsLseOnly) {
  const Problem problem = parse_problem(
      "fwd fp32 batch=1 num_heads=1 seqlen=4:20 head_dim=8 causal");
  HostProblem host = make_host_problem(problem, 6);
  const Tensors t = host.tensors();
  const Reference before = reference_attention(problem, t);
  // Multiples of 1/8 in k keep the sum exact.
  for (int key = 0; key < 20; ++key) {
    for (int d = 0; d < 8; ++d) {
      const Element k = element(DType::kFp32, t.k, 0, 0, key, d);
      k.set(std::round(k.get() * 8) / 8);
    }
  }
  const Reference rounded = reference_attention(problem, t);
  for (int key = 0; key < 20; ++key) {
    const Element k = element(DType::kFp32, t.k, 0, 0, key, 2);
    k.set(k.get() + 16);
  }
  const Reference after = reference_attention(problem, t);
  expect_near(after.o, rounded.o);
  for (int row = 0; row < 4; ++row) {
    const double shift = 16.0 * element(DType::kFp32, t.q, 0, 0, row, 2).get() *
                         effective_softmax_scale(problem);
    EXPECT_NEAR(after.lse[static_cast<std::size_t>(row)],
                rounded.lse[static_cast<std::size_t>(row)] + shift, 1e-12);
  }
  EXPECT_NE(before.o, rounded.o);
}

TEST(ReferenceLaws, LayoutsStridesAndPoisonedGapsMakeNoDifference) {
  const std::string
      sizes = " batch=2 num_heads=4:2 seqlen=19 head_dim=16 causal window_left=9 alignment=4";
  const Problem plain = parse_problem("fwd bf16" + sizes);
  HostProblem host = make_host_problem(plain, 7);
  const Reference expected = reference_attention(plain, host.tensors());
  for (const double x : expected.o) ASSERT_TRUE(std::isfinite(x));
  for (const char* layout : {"bshd", "bhsd", "packed_qkv"}) {
    const Problem problem = parse_problem("fwd bf16" + sizes + " layout=" + layout);
    for (const Gaps& gaps : {Gaps{}, Gaps{3, 5, 2}}) {
      HostProblem other = make_host_problem(problem, 7, Inputs::kNormal, gaps);
      const Reference r = reference_attention(problem, other.tensors());
      EXPECT_EQ(r.o, expected.o) << layout;
      EXPECT_EQ(r.lse, expected.lse) << layout;
    }
  }
}

TEST(ReferenceLaws, ChosenRowsEqualThoseOfTheWhole) {
  const Problem problem = parse_problem(
      "fwd fp16 batch=2 num_heads=3 seqlen=40:33 head_dim=8:16 causal");
  HostProblem host = make_host_problem(problem, 8);
  const Reference whole = reference_attention(problem, host.tensors(), 2);
  std::vector<QueryRow> rows = all_rows({problem});
  std::shuffle(rows.begin(), rows.end(), std::mt19937(9));
  rows.resize(50);
  for (const int threads : {1, 3}) {
    const Reference some = reference_attention(problem, host.tensors(), rows, threads);
    ASSERT_EQ(some.rows, rows);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<std::size_t>((rows[i].batch * 3 + rows[i].head) * 40 +
                                               rows[i].query);
      EXPECT_EQ(some.lse[i], whole.lse[at]);
      for (std::size_t d = 0; d < 16; ++d) EXPECT_EQ(some.o[i * 16 + d], whole.o[at * 16 + d]);
    }
  }
}

TEST(ReferenceArguments, AreChecked) {
  const Problem problem = parse_problem("fwd bf16 batch=1 num_heads=1 seqlen=4 head_dim=8");
  HostProblem host = make_host_problem(problem, 1);
  const auto code_of = [&](const Tensors& tensors, std::vector<QueryRow> rows) {
    try {
      reference_attention(problem, tensors, rows);
    } catch (const Error& error) {
      return std::string(to_string(error.code()));
    }
    return std::string("none");
  };
  EXPECT_EQ(code_of(host.tensors(), {{0, 0, 3}}), "none");
  EXPECT_EQ(code_of(host.tensors(), {{0, 0, 4}}), "invalid_argument");
  EXPECT_EQ(code_of(host.tensors(), {{0, -1, 0}}), "invalid_argument");
  Tensors without_k = host.tensors();
  without_k.k.data = nullptr;
  EXPECT_EQ(code_of(without_k, {{0, 0, 0}}), "invalid_argument");
}

/// What code can say that words of the problem say too.
TEST(ReferenceWithCode, IsTheProblemThatSaysTheSame) {
  const std::string sizes = "fwd fp32 batch=2 num_heads=4:2 seqlen=20:33 head_dim=16 lse";
  const auto same = [&](const std::string& words, const std::string& text,
                        const CodeFunctions& code) {
    HostProblem by_words = make_host_problem(parse_problem(sizes + words), 1);
    const Reference expected = reference_attention(by_words.problem, by_words.tensors());
    HostProblem by_code = make_host_problem(parse_problem(sizes + text), 1);
    const Reference actual = reference_attention(by_code.problem, by_code.tensors(), expected.rows,
                                                 code);
    EXPECT_EQ(actual.o, expected.o) << text;
    EXPECT_EQ(actual.lse, expected.lse) << text;
  };
  same(" causal", " mask=k<=q",
       {{}, [](const CodePair& p) { return p.k <= p.q + p.seqlen_kv - p.seqlen_q; }});
  same(" softcap=3", " score=s",
       {[](double s, const CodePair&) { return 3.0 * std::tanh(s / 3.0); }, {}});
  same("", " score=s", {[](double s, const CodePair&) { return s; }, {}});
}

/// The text decides in partial blocks alone, for o as for lse: weights of a row add up to 1.
TEST(ReferenceWithCode, AsksAMaskNothingInFullBlocks) {
  HostProblem host = make_host_problem(
      parse_problem("fwd fp32 num_heads=2 seqlen=64:128 head_dim=16 lse blocks=32 mask=k%3!=0"), 1,
      Inputs::kEqualScores, {}, test::Blocks::kAll);
  auto& v = host.storages[static_cast<std::size_t>(host.v.storage)];
  for (std::size_t at = 0; at + 4 <= v.size(); at += 4) {
    const float one = 1;
    std::memcpy(v.data() + at, &one, 4);
  }
  const std::vector<QueryRow> rows = all_rows(sequences_of(host.problem, host.tensors()));
  const Reference result = reference_attention(
      host.problem, host.tensors(), rows, {{}, [](const CodePair& p) { return p.k % 3 != 0; }});
  for (const double o : result.o) EXPECT_NEAR(o, 1, 1e-12);
  EXPECT_GT(std::ranges::max(result.lse), std::log(86)) << "keys that the text alone leaves";
}

TEST(ReferenceWithCode, KnowsSequenceHeadAndPositions) {
  HostProblem host = make_host_problem(
      parse_problem("fwd fp32 batch=3 num_heads=2 seqlen=9 head_dim=8 lengths=packed mask=k==0"),
      1);
  std::vector<QueryRow> rows = all_rows(sequences_of(host.problem, host.tensors()));
  const CodeFunctions code{{}, [](const CodePair& p) {
                             return p.batch == 2 && p.head == 1 && p.q < p.seqlen_q && p.k == 0;
                           }};
  const Reference result = reference_attention(host.problem, host.tensors(), rows, code);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(result.lse[i] > -kInfinity, rows[i].batch == 2 && rows[i].head == 1);
    EXPECT_EQ(result.spread[i], result.lse[i] > -kInfinity ? 1.0 : 0.0);
  }
}

TEST(ReferenceWithCode, RefusesATextWithoutItsFunction) {
  HostProblem host = make_host_problem(parse_problem("fwd fp32 head_dim=8 mask=k<=q"), 1);
  EXPECT_THROW(reference_attention(host.problem, host.tensors()), Error);
  HostProblem plain = make_host_problem(parse_problem("fwd fp32 head_dim=8"), 1);
  EXPECT_THROW(reference_attention(plain.problem, plain.tensors(), std::vector<QueryRow>(1),
                                   {{}, [](const CodePair&) { return true; }}),
               Error);
}

}  // namespace
}  // namespace attnforge
