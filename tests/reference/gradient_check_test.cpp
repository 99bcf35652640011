// gradient_check_test.cpp - gradients of the oracle equal finite differences of the forward's: of a
// loss, the sum of dout o + dlse lse, by single elements of q, k and v.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <string>

#include "reference/gradients.h"
#include "reference/half.h"
#include "reference/parts/user_code.h"
#include "reference/sequences.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using test::HostProblem;

struct Check {
  std::string problem;
  CodeFunctions code = {};
  std::vector<std::vector<float>*> arrays = {};  // of problem.dargs, as `code` reads them
};
void PrintTo(const Check& c, std::ostream* out) { *out << c.problem; }

/// fp32 inputs, whose o and lse are off by their rounding: 6e-8 of them.
constexpr double kError = 2e-6;
/// Of the fourth order's formula the error is about the fourth power.
constexpr float kStep = 0x1p-6f;
constexpr int kElements = 10;  // of each tensor

class GradientCheck : public testing::TestWithParam<Check> {
 protected:
  /// The rest of a loss whose lse is a sink's alone is lost beside it.
  static bool counts(double lse) { return std::abs(lse) < 1e6; }

  double loss(const HostProblem& host, const Tensors& t) const {
    const Problem& p = host.problem;
    const Sequences sequences = sequences_of(p, t);
    const Reference r = reference_attention(p, t, all_rows(sequences), GetParam().code, 1);
    double sum = 0;
    for (std::size_t i = 0; i < r.rows.size(); ++i) {
      const QueryRow row = place_of(sequences, r.rows[i]);
      const Tensor& dout = t.gradients.dout;
      const std::int64_t at = row.batch * dout.stride_batch + row.head * dout.stride_head +
                              row.query * dout.stride_row;
      const auto columns = static_cast<std::size_t>(p.head_dim_v);
      for (std::size_t d = 0; d < columns; ++d)
        sum += r.o[i * columns + d] *
               load_element(p.dtype_o, dout.data, at + static_cast<std::int64_t>(d));
      const Rows& dlse = t.gradients.dlse;
      if (p.dlse && counts(r.lse[i]))
        sum += r.lse[i] *
               dlse.data[row.batch * dlse.stride_batch + row.head * dlse.stride_head + row.query];
    }
    return sum;
  }

  /// d loss / d x, by two central differences.
  double slope(const HostProblem& host, const Tensors& t, float& x) const {
    const float before = x;
    const auto central = [&](float step) {
      x = before + step;
      const double right = x, loss_right = loss(host, t);
      x = before - step;
      const double left = x, loss_left = loss(host, t);
      x = before;
      return (loss_right - loss_left) / (right - left);
    };
    return (4 * central(kStep / 2) - central(kStep)) / 3;
  }
};

TEST_P(GradientCheck, EqualsFiniteDifferences) {
  const Problem problem = parse_problem(GetParam().problem);
  HostProblem host = test::make_host_problem(problem, 5);
  if (!problem.score.empty() || !problem.mask.empty())
    test::set_forward_outputs(host, GetParam().code);
  Tensors t = host.tensors();
  const Sequences sequences = sequences_of(problem, t);
  const ReferenceGradients g = reference_gradients(problem, t, all_backward_rows(sequences),
                                                   GetParam().code, 1);
  std::mt19937 random(11);
  const auto check = [&](const char* name, const ReferenceGradient& gradient, const Tensor& of,
                         const std::function<QueryRow(std::size_t)>& place) {
    double largest = 0;
    for (int n = 0; n < kElements; ++n) {
      const std::size_t row = random() % gradient.terms.size();
      const auto column = static_cast<std::size_t>(random()) %
                          static_cast<std::size_t>(gradient.columns);
      const QueryRow at = place(row);
      float& x = static_cast<float*>(
          of.data)[at.batch * of.stride_batch + at.head * of.stride_head +
                   at.query * of.stride_row + static_cast<std::int64_t>(column)];
      const double expected = slope(host, t, x);
      const double actual = gradient
                                .values[row * static_cast<std::size_t>(gradient.columns) + column];
      largest = std::max(largest, std::abs(expected));
      EXPECT_NEAR(actual, expected, kError * (1 + gradient.terms[row].sum))
          << name << " row " << row << " column " << column;
    }
    EXPECT_GT(largest, 1e-3) << name << ": there is something to compare";
  };
  const auto query = [&](std::size_t i) { return place_of(sequences, g.rows.queries[i]); };
  const auto key = [&](std::size_t i) { return place_of(transposed(sequences), g.rows.keys[i]); };
  check("dq", g.dq, t.q, query);
  check("dk", g.dk, t.k, key);
  check("dv", g.dv, t.v, key);
  ASSERT_EQ(g.dargs.size(), GetParam().arrays.size());
  for (std::size_t i = 0; i < g.dargs.size(); ++i) {
    double largest = 0;
    for (std::size_t at = 0; at < g.dargs[i].values.size(); ++at) {
      const double expected = slope(host, t, GetParam().arrays[i]->at(at));
      largest = std::max(largest, std::abs(expected));
      EXPECT_NEAR(g.dargs[i].values[at], expected, kError * (1 + g.dargs[i].terms[at].sum))
          << "array " << i << " element " << at;
    }
    EXPECT_GT(largest, 1e-3) << "there is something to compare";
  }
  if (!problem.sinks) return;
  std::vector<float> sinks(t.sinks, t.sinks + problem.num_heads_q);
  t.sinks = sinks.data();
  for (std::size_t head = 0; head < sinks.size(); ++head) {
    if (!counts(sinks[head])) continue;
    EXPECT_NEAR(g.dsinks.values[head], slope(host, t, sinks[head]), 1e-5)
        << "sink of head " << head;
  }
}

/// Not linear, and of every position.
CodeFunctions curved_score() {
  return {.score =
              [](double s, const CodePair& p) {
                return s + 0.1 * s * s + 0.2 * double(p.k - p.q + p.head + p.batch);
              },
          .mask = {},
          .score_derivative = [](double s, const CodePair&) { return 1 + 0.2 * s; }};
}

/// Two arrays, one of them read twice, of which one read is not always made:
/// s * (1 + 0.1 * table[k]) + slope[head] * (k - q) + (k < q ? table[q] * table[q] : 0).
std::vector<float> slope_of_check = {0.3f, -0.2f}, table_of_check = {0.5f, -0.25f, 1, 0.125f, 2, 0};

CodeFunctions score_of_arrays() {
  const auto table = [](std::int64_t i) {
    return double{table_of_check.at(static_cast<std::size_t>(i))};
  };
  return {.score =
              [table](double s, const CodePair& p) {
                const double square = p.k < p.q ? table(p.q) * table(p.q) : 0;
                return s * (1 + 0.1 * table(p.k)) +
                       slope_of_check.at(static_cast<std::size_t>(p.head)) * double(p.k - p.q) +
                       square;
              },
          .mask = {},
          .score_derivative = [table](double, const CodePair& p) { return 1 + 0.1 * table(p.k); },
          .dargs = {{.elements = 6}, {.elements = 2}},
          .score_reads =
              [table](double s, const CodePair& p, const CodeFunctions::AddRead& add) {
                add(0, p.k, 0.1 * s);
                add(1, p.head, double(p.k - p.q));
                if (p.k >= p.q) return;
                add(0, p.q, table(p.q));
                add(0, p.q, table(p.q));
              }};
}
const std::vector<std::vector<float>*> kArraysOfCheck = {&table_of_check, &slope_of_check};

const Check kChecks[] = {
    {"bwd fp32 batch=2 num_heads=2:1 seqlen=4:6 head_dim=8 softcap=3 dlse args=\"float* t, float* "
     "l\" score=s+t[0]+l[0] dargs=t,l",
     score_of_arrays(), kArraysOfCheck},
    {"bwd fp32 batch=3 num_heads=2 seqlen=5:6 head_dim=8 causal lengths=packed args=\"float* t, "
     "float* l\" score=s+t[0]+l[0] dargs=t,l",
     score_of_arrays(), kArraysOfCheck},
    {"bwd fp32 batch=2 num_heads=2 seqlen=3:5 head_dim=8"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=5 head_dim=8 causal"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=5:3 head_dim=8 causal dlse"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=6 head_dim=8 window_left=2 window_right=1"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=4:5 head_dim=8 softcap=1.5"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=4:5 head_dim=8 softmax_scale=0.9 softcap=3 causal dlse"},
    {"bwd fp32 batch=1 num_heads=6:2 seqlen=3:4 head_dim=8"},
    {"bwd fp32 batch=1 num_heads=4:1 seqlen=3:4 head_dim=8 dlse"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=3:4 head_dim=24:8"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=3:4 head_dim=8:16 dlse"},
    {"bwd fp32 batch=1 num_heads=6 seqlen=3 head_dim=8 sinks causal dlse"},
    {"bwd fp32 batch=5 num_heads=6:2 seqlen=4:6 head_dim=8:16 lengths=packed sinks causal"},
    {"bwd fp32 batch=5 num_heads=3 seqlen=4:6 head_dim=8 lengths=used sinks dlse layout=bhsd"},
    {"bwd fp32 batch=5 num_heads=2:1 seqlen=4:6 head_dim=8 lengths=packed causal"},
    {"bwd fp32 batch=5 num_heads=2 seqlen=4:6 head_dim=8 lengths=used dlse layout=bhsd"},
    {"bwd fp32 batch=1 num_heads=2 seqlen=20 head_dim=8 blocks=16 mask_bits mask_heads=2"},
    {"bwd fp32 batch=2 num_heads=2 seqlen=4:5 head_dim=8 score=s dlse", curved_score()},
    {"bwd fp32 batch=1 num_heads=2 seqlen=4:5 head_dim=8 score=s softcap=2 causal", curved_score()},
    {"bwd fp32 batch=1 num_heads=2 seqlen=4:5 head_dim=8 mask=k<=q",
     {.score = {}, .mask = [](const CodePair& p) { return (p.k + p.q + p.head) % 3 != 0; }}},
};

INSTANTIATE_TEST_SUITE_P(Options, GradientCheck, testing::ValuesIn(kChecks));

}  // namespace
}  // namespace attnforge
