// gradients_test.cpp - the oracle of backward against numbers worked out by hand, against laws of
// gradients, and against the formulas written down a second time.
#include "reference/gradients.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>

#include "attnforge/error.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/support/arbitrary_problem.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using test::Gaps;
using test::HostProblem;
using test::Inputs;
using test::make_host_problem;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// Sets row `row` of batch 0, head 0 to (first, 0, ...).
void set_row(const Tensor& tensor, std::int64_t row, float first) {
  for (int d = 0; d < 8; ++d)
    store_element(DType::kFp32, tensor.data, row * tensor.stride_row + d, d == 0 ? first : 0.0f);
}

/// One head, fp32, head_dim 8, of which column 0 alone is not 0: one query 1, keys 0 and log(3),
/// values 8 and 4, dout 1. p = 1/4 and 3/4, o = 5.
HostProblem two_keys(const std::string& options = "") {
  HostProblem host = make_host_problem(
      parse_problem("bwd fp32 head_dim=8 batch=1 num_heads=1 seqlen=1:2 softmax_scale=0.5" +
                    options),
      1);
  const Tensors t = host.tensors();
  set_row(t.q, 0, 2), set_row(t.k, 0, 0), set_row(t.k, 1, std::log(3.0f));
  set_row(t.v, 0, 8), set_row(t.v, 1, 4), set_row(t.gradients.dout, 0, 1);
  test::set_forward_outputs(host);
  return host;
}

TEST(GradientsByHand, TwoKeys) {
  HostProblem host = two_keys();
  const ReferenceGradients g = reference_gradients(host.problem, host.tensors());
  // ds = p (v - o): 3/4 and -3/4.
  EXPECT_NEAR(g.dv.values[0], 0.25, 1e-6);
  EXPECT_NEAR(g.dv.values[8], 0.75, 1e-6);
  EXPECT_NEAR(g.dk.values[0], 0.5 * 0.75 * 2, 1e-6);
  EXPECT_NEAR(g.dk.values[8], 0.5 * -0.75 * 2, 1e-6);
  EXPECT_NEAR(g.dq.values[0], 0.5 * -0.75 * std::log(3.0), 1e-6);
  EXPECT_EQ(g.dq.values[1], 0);
  // Sizes of terms: of dv these themselves; of dq with ds as large as p (|dout| |v| + |dout| |o|).
  EXPECT_NEAR(g.dv.terms[1].sum, 0.75, 1e-6);
  EXPECT_NEAR(g.dv.terms[1].root, 0.75, 1e-6);
  EXPECT_EQ(g.dv.terms[1].factors, 1);
  EXPECT_NEAR(g.dq.terms[0].sum, 0.5 * 0.75 * (4 + 5) * std::log(3.0), 1e-5);
  EXPECT_NEAR(g.dq.terms[0].root, 0.5 * 0.75 * std::log(3.0), 1e-6);
}

TEST(GradientsByHand, OfLseComesBesideThatOfO) {
  HostProblem host = two_keys(" dlse");
  *host.tensors().gradients.dlse.data = 2;
  const ReferenceGradients g = reference_gradients(host.problem, host.tensors());
  EXPECT_NEAR(g.dk.values[0], 0.75 + 2 * 0.25, 1e-6);
  EXPECT_NEAR(g.dk.values[8], -0.75 + 2 * 0.75, 1e-6);
  EXPECT_NEAR(g.dv.values[0], 0.25, 1e-6);
}

TEST(GradientsByHand, AreAddedToWhatIsThere) {
  HostProblem host = two_keys(" accumulate");
  const Tensors t = host.tensors();
  set_row(t.gradients.dq, 0, 10), set_row(t.gradients.dk, 0, 20), set_row(t.gradients.dv, 1, 30);
  const ReferenceGradients g = reference_gradients(host.problem, t);
  EXPECT_NEAR(g.dq.values[0], 10 - 0.5 * 0.75 * std::log(3.0), 1e-6);
  EXPECT_NEAR(g.dk.values[0], 20.75, 1e-6);
  EXPECT_NEAR(g.dv.values[8], 30.75, 1e-6);
}

TEST(GradientsByHand, HoldForAnyOutputAndLse) {
  HostProblem host = two_keys();
  const Tensors t = host.tensors();
  set_row(t.o, 0, 7);
  *t.lse.data = static_cast<float>(std::log(2.0));  // p = 1/2 and 3/2
  const ReferenceGradients g = reference_gradients(host.problem, t);
  EXPECT_NEAR(g.dv.values[8], 1.5, 1e-6);
  EXPECT_NEAR(g.dk.values[0], 0.5 * (8 - 7), 1e-6);
  EXPECT_NEAR(g.dk.values[8], 1.5 * (4 - 7), 1e-6);
}

TEST(GradientsByHand, ARowWithoutKeysHasNone) {
  const Problem problem = parse_problem(
      "bwd fp32 batch=1 num_heads=2 seqlen=9:4 head_dim=8 causal dlse");
  HostProblem host = make_host_problem(problem, 1);
  const Tensors t = host.tensors();
  ASSERT_EQ(t.lse.data[0], -kInfinity);
  // Nothing of such a row counts, whatever it is.
  for (int row = 0; row < 5; ++row) {
    set_row(t.gradients.dout, row, std::nanf(""));
    t.gradients.dlse.data[row] = kInfinity;
  }
  const ReferenceGradients g = reference_gradients(problem, t);
  for (int i = 0; i < 5 * 8; ++i) EXPECT_EQ(g.dq.values[static_cast<std::size_t>(i)], 0);
  for (const ReferenceGradient* gradient : {&g.dq, &g.dk, &g.dv})
    for (const double x : gradient->values) ASSERT_TRUE(std::isfinite(x));
}

TEST(GradientsByHand, AnLseOfMinusInfinityMakesProbabilitiesZero) {
  HostProblem host = two_keys();
  *host.tensors().lse.data = -kInfinity;
  const ReferenceGradients g = reference_gradients(host.problem, host.tensors());
  for (const ReferenceGradient* gradient : {&g.dq, &g.dk, &g.dv})
    for (const double x : gradient->values) EXPECT_EQ(x, 0);
}

TEST(GradientsByHand, WithoutQueriesOrKeysAreZero) {
  const auto gradients = [](const char* text) {
    HostProblem host = make_host_problem(parse_problem(text), 1);
    return reference_gradients(host.problem, host.tensors());
  };
  const ReferenceGradients keys = gradients("bwd bf16 num_heads=2 seqlen=0:3 head_dim=8");
  EXPECT_EQ(keys.dq.values.size(), 0u);
  EXPECT_EQ(keys.dk.values, std::vector<double>(2 * 3 * 8, 0.0));
  const ReferenceGradients queries = gradients("bwd bf16 num_heads=2 seqlen=3:0 head_dim=8");
  EXPECT_EQ(queries.dq.values, std::vector<double>(2 * 3 * 8, 0.0));
  EXPECT_EQ(queries.dv.values.size(), 0u);
  EXPECT_TRUE(gradients("bwd bf16 batch=0 seqlen=3 head_dim=8").rows.queries.empty());
}

TEST(GradientsByHand, ASinkTakesItsShare) {
  HostProblem host = two_keys(" sinks");
  Tensors t = host.tensors();
  const float sink = std::log(4.0f);  // as much as both keys: p = 1/8 and 3/8, o = 2.5
  t.sinks = &sink;
  *t.lse.data = std::log(8.0f);
  set_row(t.o, 0, 2.5f);
  const ReferenceGradients g = reference_gradients(host.problem, t);
  EXPECT_NEAR(g.dk.values[0], (8 - 2.5) / 8, 1e-6);
  EXPECT_NEAR(g.dk.values[8], (4 - 2.5) * 3 / 8, 1e-6);
  ASSERT_EQ(g.dsinks.values.size(), 1u);
  EXPECT_NEAR(g.dsinks.values[0], -0.5 * 2.5, 1e-6);
}

TEST(GradientLaws, OfKeysAddUpToNothingAndOfValuesToThatOfO) {
  // The same vector added to all keys changes no output; one added to all values changes all.
  const Problem problem = parse_problem(
      "bwd fp32 batch=2 num_heads=4:2 seqlen=7:12 head_dim=16:24 causal");
  HostProblem host = make_host_problem(problem, 3);
  const Tensors t = host.tensors();
  const ReferenceGradients g = reference_gradients(problem, t);
  std::vector<double> of_keys(2 * 2 * 16), of_values(2 * 2 * 24);
  const auto add = [&](const QueryRow& row, const ReferenceGradient& from, std::size_t i,
                       std::vector<double>& to) {
    const auto columns = static_cast<std::size_t>(from.columns);
    for (std::size_t d = 0; d < columns; ++d)
      to[static_cast<std::size_t>(row.batch * 2 + row.head) * columns +
         d] += from.values[i * columns + d];
  };
  for (std::size_t i = 0; i < g.rows.keys.size(); ++i)
    add(g.rows.keys[i], g.dk, i, of_keys), add(g.rows.keys[i], g.dv, i, of_values);
  for (const QueryRow& row : g.rows.queries) {
    for (int d = 0; d < 24; ++d) {
      const Tensor& dout = t.gradients.dout;
      const std::int64_t at = row.batch * dout.stride_batch + row.head * dout.stride_head +
                              row.query * dout.stride_row + d;
      of_values[static_cast<std::size_t>((row.batch * 2 + row.head / 2) * 24 + d)] -= load_element(
          DType::kFp32, dout.data, at);
    }
  }
  for (const double x : of_keys) EXPECT_NEAR(x, 0, 1e-5);
  for (const double x : of_values) EXPECT_NEAR(x, 0, 1e-5);
}

TEST(GradientLaws, LayoutsStridesAndPoisonedGapsMakeNoDifference) {
  const std::string sizes =
      " batch=2 num_heads=4:2 seqlen=13 head_dim=16 causal window_left=9 alignment=4 dlse "
      "accumulate";
  const Problem plain = parse_problem("bwd bf16" + sizes);
  HostProblem host = make_host_problem(plain, 7);
  const ReferenceGradients expected = reference_gradients(plain, host.tensors());
  for (const double x : expected.dq.values) ASSERT_TRUE(std::isfinite(x));
  for (const char* layout : {"bshd", "bhsd", "packed_qkv"}) {
    const Problem problem = parse_problem("bwd bf16" + sizes + " layout=" + layout);
    for (const Gaps& gaps : {Gaps{}, Gaps{3, 5, 2}}) {
      HostProblem other = make_host_problem(problem, 7, Inputs::kNormal, gaps);
      const ReferenceGradients g = reference_gradients(problem, other.tensors());
      EXPECT_EQ(g.dq.values, expected.dq.values) << layout;
      EXPECT_EQ(g.dk.values, expected.dk.values) << layout;
      EXPECT_EQ(g.dv.values, expected.dv.values) << layout;
    }
  }
}

TEST(GradientLaws, ChosenRowsEqualThoseOfTheWhole) {
  const Problem problem = parse_problem(
      "bwd fp16 batch=3 num_heads=4:2 seqlen=11:9 head_dim=8:16 lengths=packed");
  HostProblem host = make_host_problem(problem, 8);
  const ReferenceGradients whole = reference_gradients(problem, host.tensors(), 2);
  BackwardRows rows;
  std::vector<std::size_t> queries, keys;
  for (std::size_t i = 0; i < whole.rows.queries.size(); i += 5) {
    rows.queries.insert(rows.queries.begin(), whole.rows.queries[i]);
    queries.insert(queries.begin(), i);
  }
  for (std::size_t i = 0; i < whole.rows.keys.size(); i += 3) {
    rows.keys.insert(rows.keys.begin(), whole.rows.keys[i]);
    keys.insert(keys.begin(), i);
  }
  const ReferenceGradients some = reference_gradients(problem, host.tensors(), rows, 3);
  const auto same = [](const ReferenceGradient& few, std::size_t i, const ReferenceGradient& all,
                       std::size_t at) {
    const auto columns = static_cast<std::size_t>(few.columns);
    for (std::size_t d = 0; d < columns; ++d)
      EXPECT_EQ(few.values[i * columns + d], all.values[at * columns + d]);
    EXPECT_EQ(few.terms[i].sum, all.terms[at].sum);
  };
  for (std::size_t i = 0; i < queries.size(); ++i) same(some.dq, i, whole.dq, queries[i]);
  for (std::size_t i = 0; i < keys.size(); ++i) {
    same(some.dk, i, whole.dk, keys[i]);
    same(some.dv, i, whole.dv, keys[i]);
  }
}

TEST(GradientArguments, AreChecked) {
  const auto code_of = [](const std::string& options, const auto& change) {
    HostProblem host = make_host_problem(
        parse_problem("bwd bf16 num_heads=2:1 seqlen=4:5 head_dim=8" + options), 1);
    Tensors tensors = host.tensors();
    BackwardRows rows{{{0, 1, 3}}, {{0, 0, 4}}};
    change(host.problem, tensors, rows);
    try {
      reference_gradients(host.problem, tensors, rows);
    } catch (const Error& error) {
      return std::string(to_string(error.code()));
    }
    return std::string("none");
  };
  EXPECT_EQ(code_of("", [](auto&, auto&, auto&) {}), "none");
  EXPECT_EQ(code_of("", [](auto& p, auto&, auto&) { p.op = Op::kForward; }), "invalid_argument");
  const auto null = [](auto member) {
    return [member](auto&, auto& t, auto&) { (t.gradients.*member).data = nullptr; };
  };
  EXPECT_EQ(code_of("", null(&Gradients::dout)), "invalid_argument");
  EXPECT_EQ(code_of("", null(&Gradients::dq)), "none");
  EXPECT_EQ(code_of(" accumulate", null(&Gradients::dq)), "invalid_argument");
  EXPECT_EQ(code_of("", null(&Gradients::dlse)), "none");
  EXPECT_EQ(code_of(" dlse", null(&Gradients::dlse)), "invalid_argument");
  const auto query = [](QueryRow row) {
    return [row](auto&, auto&, auto& rows) { rows.queries = {row}; };
  };
  const auto key = [](QueryRow row) {
    return [row](auto&, auto&, auto& rows) { rows.keys = {row}; };
  };
  EXPECT_EQ(code_of("", query({1, 0, 0})), "invalid_argument");
  EXPECT_EQ(code_of("", query({0, 0, 4})), "invalid_argument");
  EXPECT_EQ(code_of("", key({0, 1, 0})), "invalid_argument");
  EXPECT_EQ(code_of("", key({0, 0, 5})), "invalid_argument");
  EXPECT_EQ(code_of(" score=s", [](auto&, auto&, auto&) {}), "invalid_argument");
}

// ---- A second time ----

constexpr test::MostSizes kMost = {.batch_bits = 1, .heads_bits = 1, .seqlen_bits = 3};

double element(DType dtype, const Tensor& tensor, std::int64_t head, std::int64_t row, int column) {
  return load_element(dtype, tensor.data,
                      head * tensor.stride_head + row * tensor.stride_row + column);
}

/// Of one pair: p and softmax_scale ds.
struct Pair {
  double p = 0, ds = 0;
};

Pair pair_by_definition(const Sequence& one, std::int64_t head, std::int64_t query,
                        std::int64_t key) {
  const Problem& p = one.problem;
  const Tensors& t = one.tensors;
  const double lse = t.lse.data[head * t.lse.stride_head + query];
  const std::int64_t position = query + p.seqlen_kv - p.seqlen_q,
                     kv_head = head / (p.num_heads_q / p.num_heads_kv);
  if (lse == -kInfinity || !one.mask.row(0, head, query).contains(key) ||
      (p.causal && key > position) || (p.window_left >= 0 && key < position - p.window_left) ||
      (p.window_right >= 0 && key > position + p.window_right))
    return {};
  const double scale = effective_softmax_scale(p);
  double s = 0, dp = 0;
  for (int d = 0; d < p.head_dim; ++d)
    s += scale * element(p.dtype_q, t.q, head, query, d) * element(p.dtype_k, t.k, kv_head, key, d);
  double slope = 1;
  if (p.softcap != 0) {
    const double x = s / p.softcap;
    slope = 1 - std::tanh(x) * std::tanh(x);
    s = p.softcap * std::tanh(x);
  }
  const Gradients& g = t.gradients;
  for (int d = 0; d < p.head_dim_v; ++d)
    dp += element(p.dtype_o, g.dout, head, query, d) *
          (element(p.dtype_v, t.v, kv_head, key, d) - element(p.dtype_o, t.o, head, query, d));
  if (p.dlse) dp += g.dlse.data[head * g.dlse.stride_head + query];
  const double probability = std::exp(s - lse);
  return {probability, scale * probability * dp * slope};
}

RC_GTEST_PROP(RandomGradients, TheOracleIsBackwardByItsDefinition, ()) {
  const Problem problem = *test::arbitrary_backward_problem(kMost);
  HostProblem host = make_host_problem(problem, 1);
  const Tensors tensors = host.tensors();
  const ReferenceGradients oracle = reference_gradients(problem, tensors, 1);
  const auto expect = [&](double sum, double actual, const TermSizes& terms) {
    RC_ASSERT(std::abs(sum - actual) <= 1e-11 * (1 + std::abs(sum) + terms.sum + terms.by_score));
  };
  // A column of every second row is enough.
  std::map<std::int64_t, Sequence> sequences;
  for (std::int64_t batch = 0; batch < problem.batch; ++batch)
    sequences.emplace(batch, sequence_of(problem, tensors, batch));
  for (std::size_t i = 0; i < oracle.rows.queries.size(); i += 2) {
    const QueryRow& row = oracle.rows.queries[i];
    const Sequence& one = sequences.at(row.batch);
    const Problem& p = one.problem;
    const int d = static_cast<int>(i) % p.head_dim;
    double dq = p.accumulate ? element(gradient_dtype(p, p.dtype_q), one.tensors.gradients.dq,
                                       row.head, row.query, d)
                             : 0.0;
    for (std::int64_t key = 0; key < p.seqlen_kv; ++key)
      dq += pair_by_definition(one, row.head, row.query, key).ds *
            element(p.dtype_k, one.tensors.k, row.head / (p.num_heads_q / p.num_heads_kv), key, d);
    expect(dq,
           oracle.dq.values[i * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(d)],
           oracle.dq.terms[i]);
  }
  for (std::size_t i = 0; i < oracle.rows.keys.size(); i += 2) {
    const QueryRow& row = oracle.rows.keys[i];
    const Sequence& one = sequences.at(row.batch);
    const Problem& p = one.problem;
    const Gradients& g = one.tensors.gradients;
    const int d = static_cast<int>(i) % p.head_dim, d_v = static_cast<int>(i) % p.head_dim_v;
    double dk = 0, dv = 0;
    if (p.accumulate) {
      dk = element(gradient_dtype(p, p.dtype_k), g.dk, row.head, row.query, d);
      dv = element(gradient_dtype(p, p.dtype_v), g.dv, row.head, row.query, d_v);
    }
    const std::int64_t group = p.num_heads_q / p.num_heads_kv;
    for (std::int64_t head = row.head * group; head < (row.head + 1) * group; ++head) {
      for (std::int64_t query = 0; query < p.seqlen_q; ++query) {
        const Pair pair = pair_by_definition(one, head, query, row.query);
        dk += pair.ds * element(p.dtype_q, one.tensors.q, head, query, d);
        dv += pair.p * element(p.dtype_o, g.dout, head, query, d_v);
      }
    }
    expect(dk,
           oracle.dk.values[i * static_cast<std::size_t>(p.head_dim) + static_cast<std::size_t>(d)],
           oracle.dk.terms[i]);
    expect(dv,
           oracle.dv
               .values[i * static_cast<std::size_t>(p.head_dim_v) + static_cast<std::size_t>(d_v)],
           oracle.dv.terms[i]);
  }
}

}  // namespace
}  // namespace attnforge
