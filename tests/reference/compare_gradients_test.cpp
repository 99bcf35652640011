// compare_gradients_test.cpp - which gradients pass, which do not, and what is said about them; and
// that the tolerances let a correct kernel pass and no mistake.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "reference/compare/gradient_tolerance.h"
#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/kernels/flash_gradients.h"
#include "tests/support/host_problem.h"
#include "tests/support/plain/gradients.h"
#include "tests/support/plain/limits.h"

namespace attnforge {
namespace {

using test::HostProblem;
using test::Inputs;
using test::make_host_problem;
using testing::HasSubstr;

/// Writes gradients as well as the dtypes hold them.
void store_gradients(const Problem& problem, const Tensors& tensors,
                     const ReferenceGradients& gradients) {
  const Sequences sequences = sequences_of(problem, tensors);
  const auto store = [](DType dtype, const Tensor& to, const QueryRow& row,
                        const ReferenceGradient& from, std::size_t i) {
    const std::int64_t at = row.batch * to.stride_batch + row.head * to.stride_head +
                            row.query * to.stride_row;
    for (int d = 0; d < from.columns; ++d) {
      const double
          x = from.values[i * static_cast<std::size_t>(from.columns) + static_cast<std::size_t>(d)];
      store_element(dtype, to.data, at + d, static_cast<float>(x));
    }
  };
  const Gradients& g = tensors.gradients;
  for (std::size_t i = 0; i < gradients.rows.queries.size(); ++i)
    store(gradient_dtype(problem, problem.dtype_q), g.dq,
          place_of(sequences, gradients.rows.queries[i]), gradients.dq, i);
  for (std::size_t i = 0; i < gradients.rows.keys.size(); ++i) {
    const QueryRow row = place_of(transposed(sequences), gradients.rows.keys[i]);
    store(gradient_dtype(problem, problem.dtype_k), g.dk, row, gradients.dk, i);
    store(gradient_dtype(problem, problem.dtype_v), g.dv, row, gradients.dv, i);
  }
  for (std::size_t head = 0; head < gradients.dsinks.values.size(); ++head)
    g.dsinks[head] = static_cast<float>(gradients.dsinks.values[head]);
}

/// A problem whose gradients are the oracle's.
struct Solved {
  HostProblem host;
  ReferenceGradients reference;
  Tensors tensors;

  explicit Solved(const std::string& text, Inputs inputs = Inputs::kNormal)
      : host(make_host_problem(parse_problem(text), 1, inputs)),
        reference(reference_gradients(host.problem, host.tensors(), 1)),
        tensors(host.tensors()) {
    store_gradients(host.problem, tensors, reference);
  }
  GradientVerdict verdict() const { return compare_gradients(host.problem, tensors, reference); }
};

TEST(CompareGradients, TheRoundedOraclePasses) {
  for (const char* words :
       {"fp32", "fp16", "bf16", "bf16 gradients=fp32", "fp16 accumulate",
        "bf16 lengths=packed sinks", "fp16 lengths=used gradients=fp32 accumulate sinks"}) {
    const Solved solved(std::string("bwd ") + words +
                        " batch=2 num_heads=4:2 seqlen=20:11 head_dim=16:8 causal");
    const GradientVerdict verdict = solved.verdict();
    EXPECT_TRUE(verdict.passed()) << words << "\n" << to_string(verdict);
    EXPECT_GT(verdict.dq.cosine, 0.9999) << words;
    EXPECT_GT(verdict.dk.cosine, 0.9999) << words;
    EXPECT_GT(verdict.dv.elements, 0) << words;
    EXPECT_EQ(verdict.dsinks.elements, solved.host.problem.sinks ? 4 : 0) << words;
    EXPECT_EQ(solved.host.trespass(), "") << words;
  }
}

TEST(CompareGradients, TheWorstElementIsNamed) {
  Solved solved("bwd bf16 batch=2 num_heads=4:2 seqlen=20:11 head_dim=16 causal");
  const Tensor& dk = solved.tensors.gradients.dk;
  const std::int64_t at = dk.stride_batch + dk.stride_head + 7 * dk.stride_row + 5;
  store_element(DType::kBf16, dk.data, at, 3.0f);
  const GradientVerdict verdict = solved.verdict();
  EXPECT_FALSE(verdict.passed());
  EXPECT_TRUE(verdict.dq.passed() && verdict.dv.passed());
  EXPECT_EQ(verdict.dk.wrong, 1);
  EXPECT_THAT(to_string(verdict), HasSubstr("dk: WRONG"));
  EXPECT_THAT(to_string(verdict), HasSubstr("batch=1 head=1 key=7 column=5: 3, expected"));
  EXPECT_THAT(to_string(verdict), HasSubstr("dq: ok"));
}

TEST(CompareGradients, NanAndWhatNobodyWroteNeverPass) {
  HostProblem host = make_host_problem(
      parse_problem("bwd bf16 num_heads=2 seqlen=9:4 head_dim=8 causal"), 1);
  const Tensors t = host.tensors();
  const GradientVerdict verdict = compare_gradients(host.problem, t,
                                                    reference_gradients(host.problem, t));
  EXPECT_EQ(verdict.dq.nonfinite_wrong, 2 * 9 * 8) << "poison is no gradient";
  EXPECT_EQ(verdict.dk.nonfinite_wrong, 2 * 4 * 8);
  Solved solved("bwd bf16 num_heads=2 seqlen=9:4 head_dim=8 causal");
  store_element(DType::kBf16, solved.tensors.gradients.dq.data, 3, 1e-3f);  // sees no key
  EXPECT_EQ(solved.verdict().dq.wrong, 1);
}

TEST(CompareGradients, LetACorrectKernelPassForAnyInputs) {
  for (const char* words :
       {"bf16", "fp16 causal", "bf16 gradients=fp32 dlse", "fp16 softcap=2",
        "bf16 accumulate window_left=9", "fp32 causal", "fp16 sinks gradients=fp32"}) {
    for (const Inputs inputs :
         {Inputs::kNormal, Inputs::kStronglyNegative, Inputs::kStronglyPositive, Inputs::kLarge,
          Inputs::kGrowingToFirst, Inputs::kEqualScores}) {
      HostProblem host = make_host_problem(
          parse_problem(std::string("bwd num_heads=6:2 seqlen=7:16 head_dim=16:8 ") + words), 3,
          inputs);
      const Tensors t = host.tensors();
      const ReferenceGradients expected = reference_gradients(host.problem, t, 1);
      const PlainGradientErrors plain = plain_gradient_errors(host.problem, t, expected, {}, 1);
      test::flash_gradients(host.problem, t);
      const GradientVerdict verdict = compare_gradients(host.problem, t, expected);
      const std::string what = std::string(words) + " inputs " +
                               std::to_string(static_cast<int>(inputs)) + "\n" + to_string(verdict);
      EXPECT_TRUE(verdict.passed()) << what;
      const auto within = [&](GradientName name, double error, double of_plain,
                              const ReferenceGradient& gradient) {
        EXPECT_LE(error, plain_gradient_limit(host.problem, name, of_plain, gradient)) << what;
      };
      within(GradientName::kDq, verdict.dq.max_error, plain.dq, expected.dq);
      within(GradientName::kDk, verdict.dk.max_error, plain.dk, expected.dk);
      within(GradientName::kDv, verdict.dv.max_error, plain.dv, expected.dv);
    }
  }
}

TEST(CompareGradients, ToleratesNoMoreThanTheRoundingsThatItStandsFor) {
  const struct {
    const char* dtype;
    double unit, weight, gradient;  // the least steps of numbers, of weights and of the gradient
  } cases[] = {{"fp32", 0x1p-24, 0x1p-110, 0x1p-126},
               {"fp16", 0x1p-11, 0x1p-25, 0x1p-24},
               {"bf16", 0x1p-8, 0x1p-110, 0x1p-126}};
  for (const auto& [dtype, unit, weight, gradient] : cases) {
    SCOPED_TRACE(dtype);
    const Problem p = parse_problem(std::string("bwd ") + dtype +
                                    " batch=1 num_heads=4:2 seqlen=50:512 head_dim=64");
    for (const GradientName name : {GradientName::kDq, GradientName::kDk, GradientName::kDv}) {
      const GradientTolerance tolerance = gradient_tolerance(p, name);
      // Nine equal terms have a root of 3, and roundings that all go one way.
      EXPECT_DOUBLE_EQ(tolerance.root_rtol * 3, 9 * unit);
      EXPECT_DOUBLE_EQ(tolerance.rtol, 3 * unit);
      EXPECT_EQ(tolerance.score_rtol, 0x1p-21);
      EXPECT_EQ(tolerance.factors_atol, weight);
      EXPECT_EQ(tolerance.atol, gradient);
      // Keys of a query, or the queries of a group of heads of a key.
      const double terms = name == GradientName::kDq ? 512 : 50 * 2;
      EXPECT_NEAR(tolerance.sum_rtol, 1e-7 * (8 + std::sqrt(terms)) + 0x1p-21, 1e-15);
    }
  }
}

TEST(CompareGradients, OfSinksToleratesRoundingsOfFp32Alone) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const Problem p = parse_problem(std::string("bwd ") + dtype +
                                    " batch=2 num_heads=4:2 seqlen=50:512 head_dim=64 sinks");
    const GradientTolerance tolerance = gradient_tolerance(p, GradientName::kDsinks);
    EXPECT_EQ(tolerance.rtol, 0x1p-22);
    EXPECT_EQ(tolerance.score_rtol, 0x1p-22);
    EXPECT_EQ(tolerance.root_rtol, 0);
    EXPECT_EQ(tolerance.factors_atol, 0);
    EXPECT_NEAR(tolerance.sum_rtol, 1e-7 * (8 + std::sqrt(100.0)) + 0x1p-21, 1e-15);
  }
}

TEST(CompareGradients, NoMistakePasses) {
  const Problem problem = parse_problem(
      "bwd bf16 batch=1 num_heads=4:2 seqlen=40 head_dim=16 causal dlse softcap=5");
  HostProblem host = make_host_problem(problem, 4);
  const Tensors t = host.tensors();
  const ReferenceGradients right = reference_gradients(problem, t, 1);
  struct Wrong {
    bool dq, dk, dv;
  };
  const auto expect = [&](const char* mistake, const Wrong& wrong, const Problem& of,
                          const Tensors& from) {
    store_gradients(problem, t, reference_gradients(of, from, 1));
    const GradientVerdict verdict = compare_gradients(problem, t, right);
    EXPECT_EQ(verdict.dq.passed(), !wrong.dq) << mistake << "\n" << to_string(verdict);
    EXPECT_EQ(verdict.dk.passed(), !wrong.dk) << mistake << "\n" << to_string(verdict);
    EXPECT_EQ(verdict.dv.passed(), !wrong.dv) << mistake << "\n" << to_string(verdict);
  };
  expect("none", {false, false, false}, problem, t);
  const auto with = [&](const char* mistake, const Wrong& wrong, const auto& change) {
    Problem of = problem;
    change(of);
    expect(mistake, wrong, of, t);
  };
  with("no softcap", {true, true, true}, [](Problem& p) { p.softcap = 0; });
  with("no gradient of lse", {true, true, false}, [](Problem& p) { p.dlse = false; });
  with("the diagonal is masked", {true, true, true},
       [](Problem& p) { p.causal = false, p.window_right = 1; });
  with("a key before the first is seen", {true, true, true},
       [](Problem& p) { p.window_left = 30; });
  with("the scale is 2% off", {true, true, true},
       [](Problem& p) { p.softmax_scale = 1.02f * effective_softmax_scale(p); });
  const auto from = [&](const char* mistake, const Wrong& wrong, const auto& change) {
    Tensors tensors = t;
    change(tensors);
    expect(mistake, wrong, problem, tensors);
  };
  from("rows of q are shifted", {true, true, true},
       [](Tensors& x) { x.q.data = static_cast<std::uint16_t*>(x.q.data) + 1; });
  from("heads of lse are shifted", {true, true, true}, [](Tensors& x) { x.lse.stride_head = 0; });
  from("o is that of another head", {true, true, false}, [](Tensors& x) { x.o.stride_head = 0; });
}

TEST(CompareGradients, NoMistakeInASinkPasses) {
  const Problem problem = parse_problem(
      "bwd bf16 batch=5 num_heads=4:2 seqlen=40:9 head_dim=16 sinks dlse lengths=packed");
  HostProblem host = make_host_problem(problem, 4);
  const Tensors t = host.tensors();
  const ReferenceGradients right = reference_gradients(problem, t, 1);
  const auto wrong_after = [&](const auto& change) {
    store_gradients(problem, t, right);
    change(t.gradients.dsinks);
    const GradientVerdict verdict = compare_gradients(problem, t, right);
    EXPECT_TRUE(verdict.dq.passed() && verdict.dk.passed() && verdict.dv.passed());
    EXPECT_EQ(verdict.passed(), verdict.dsinks.passed());
    return verdict.dsinks.wrong;
  };
  EXPECT_EQ(wrong_after([](float*) {}), 0);
  EXPECT_GE(wrong_after([](float* dsinks) { std::swap(dsinks[0], dsinks[2]); }), 1);
  EXPECT_EQ(wrong_after([](float* dsinks) { dsinks[2] *= 1.001f; }), 1);
  EXPECT_EQ(wrong_after([](float* dsinks) { dsinks[1] = NAN; }), 1);
  // Rows of another lse, and a delta without that of lse.
  Problem of = problem;
  of.dlse = false;
  const ReferenceGradients other = reference_gradients(of, t, 1);
  EXPECT_GE(wrong_after([&](float* dsinks) {
              for (int head = 0; head < 4; ++head)
                dsinks[head] = float(other.dsinks.values[std::size_t(head)]);
            }),
            2);
}

}  // namespace
}  // namespace attnforge
