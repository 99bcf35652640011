// compare_test.cpp - what passes as equal, what does not, and what is said about it; and that the
// tolerances are no wider than a mistake.
#include "reference/compare/outputs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "attnforge/error.h"
#include "reference/half.h"
#include "reference/sequences.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using test::HostProblem;
using test::make_host_problem;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

/// A problem whose outputs are the oracle's, as good as the dtypes hold them.
struct Solved {
  HostProblem host;
  Reference reference;
  Tensors tensors;

  explicit Solved(const std::string& text, test::Inputs inputs = test::Inputs::kNormal)
      : host(make_host_problem(parse_problem(text), 1, inputs)),
        reference(reference_attention(host.problem, host.tensors())),
        tensors(host.tensors()) {
    for (std::size_t i = 0; i < reference.rows.size(); ++i) {
      for (int d = 0; d < reference.head_dim_v; ++d) {
        set_o(i, d,
              static_cast<float>(reference.o[i * static_cast<std::size_t>(reference.head_dim_v) +
                                             static_cast<std::size_t>(d)]));
      }
      if (tensors.lse.data != nullptr) set_lse(i, static_cast<float>(reference.lse[i]));
    }
  }
  void set_o(std::size_t row, int column, float x) {
    const QueryRow& r = reference.rows[row];
    const std::int64_t at = r.batch * tensors.o.stride_batch + r.head * tensors.o.stride_head +
                            r.query * tensors.o.stride_row;
    store_element(host.problem.dtype_o, tensors.o.data, at + column, x);
  }
  void set_lse(std::size_t row, float x) {
    const QueryRow& r = reference.rows[row];
    const Rows& lse = tensors.lse;
    lse.data[r.batch * lse.stride_batch + r.head * lse.stride_head + r.query] = x;
  }
  Verdict verdict() const { return compare(host.problem, tensors, reference); }
};

const char* const kProblem = "fwd bf16 batch=2 num_heads=4:2 seqlen=30:40 head_dim=32 causal lse";

TEST(Compare, RoundedOraclePasses) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const Solved solved(std::string("fwd ") + dtype +
                        " batch=2 num_heads=4:2 seqlen=30:20 head_dim=32 causal lse");
    const Verdict verdict = solved.verdict();
    EXPECT_TRUE(verdict.passed()) << to_string(verdict);
    EXPECT_EQ(verdict.o.elements, 2 * 4 * 30 * 32);
    EXPECT_EQ(verdict.lse.elements, 2 * 4 * 30);
    EXPECT_GT(verdict.o.cosine, 0.9999);
    EXPECT_THAT(to_string(verdict), HasSubstr("o: ok"));
  }
}

TEST(Compare, WorstElementIsNamed) {
  Solved solved(kProblem);
  solved.set_o(2 * 30 + 7, 5, 1.0f + static_cast<float>(solved.reference.o[(2 * 30 + 7) * 32 + 5]));
  const Comparison o = solved.verdict().o;
  EXPECT_FALSE(o.passed());
  EXPECT_EQ(o.wrong, 1);
  EXPECT_EQ(o.nonfinite_wrong, 0);
  EXPECT_EQ(o.worst_row, (QueryRow{0, 2, 7}));
  EXPECT_EQ(o.worst_column, 5);
  EXPECT_NEAR(o.max_error, 1.0, 0.02);
  EXPECT_THAT(to_string(o), HasSubstr("batch=0 head=2 query=7 column=5"));
  EXPECT_THAT(to_string(o), HasSubstr("WRONG"));
}

TEST(Compare, NanAndInfinityNeverPass) {
  for (const float bad : {std::nanf(""), kInfinity, -kInfinity}) {
    Solved solved(kProblem);
    solved.set_o(3, 1, bad);
    solved.set_o(0, 0, 99.0f);  // however wrong another element is, the NaN is the worst
    solved.set_lse(4, bad);
    const Verdict verdict = solved.verdict();
    EXPECT_EQ(verdict.o.nonfinite_wrong, 1);
    EXPECT_EQ(verdict.o.wrong, 2);
    EXPECT_EQ(verdict.o.worst_row, solved.reference.rows[3]);
    EXPECT_EQ(verdict.lse.nonfinite_wrong, 1);
    EXPECT_FALSE(verdict.passed());
  }
}

TEST(Compare, RowsThatSeeNothingMustBeZeroAndMinusInfinity) {
  Solved solved("fwd bf16 batch=1 num_heads=1 seqlen=8:4 head_dim=8 causal lse");
  ASSERT_EQ(solved.reference.lse[0], -kInfinity);
  EXPECT_TRUE(solved.verdict().passed());
  solved.set_lse(0, -1e30f);
  EXPECT_EQ(solved.verdict().lse.nonfinite_wrong, 1);
  solved.set_lse(0, kInfinity);
  EXPECT_EQ(solved.verdict().lse.nonfinite_wrong, 1);
  solved.set_lse(0, -kInfinity);
  solved.set_o(0, 3, 1e-3f);
  EXPECT_EQ(solved.verdict().o.wrong, 1);
}

TEST(Compare, OutputThatTheDtypeCannotHoldIsInfinite) {
  Solved solved("fwd fp32 o=fp16 alignment=4 batch=1 num_heads=1 seqlen=1 head_dim=8");
  solved.reference.o[0] = 70000;
  solved.set_o(0, 0, 70000);
  EXPECT_TRUE(solved.verdict().passed());
  solved.set_o(0, 0, 65504);
  EXPECT_FALSE(solved.verdict().passed());
}

TEST(Compare, OracleThatIsNanWantsNan) {
  Solved solved(kProblem);
  solved.reference.o[0] = std::nan("");
  EXPECT_EQ(solved.verdict().o.nonfinite_wrong, 1);
  solved.set_o(0, 0, std::nanf(""));
  EXPECT_TRUE(solved.verdict().passed());
}

TEST(Compare, PoisonedOutputsFail) {
  HostProblem host = make_host_problem(parse_problem(kProblem), 1);
  const Verdict verdict = compare(host.problem, host.tensors(),
                                  reference_attention(host.problem, host.tensors()));
  EXPECT_EQ(verdict.o.nonfinite_wrong, verdict.o.elements);
  EXPECT_EQ(verdict.lse.nonfinite_wrong, verdict.lse.elements);
}

// ---- Tolerances: typical mistakes are far outside ----

TEST(Tolerance, OneKeyTooManyOrTooFewIsSeenInALongRow) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const std::string sizes = " batch=1 num_heads=1 head_dim=64 lse seqlen=64:1024";
    Solved right(std::string("fwd ") + dtype + sizes + " causal");
    const Solved mistaken(std::string("fwd ") + dtype + sizes + " window_right=1");
    right.tensors.o.data = mistaken.tensors.o.data;
    right.tensors.lse.data = mistaken.tensors.lse.data;
    const Verdict verdict = right.verdict();
    EXPECT_GT(verdict.lse.wrong, 50) << dtype;
    if (dtype != std::string("bf16")) {
      EXPECT_GT(verdict.o.wrong, 300) << dtype;
    }
  }
}

TEST(Tolerance, SlightlyWrongScaleIsSeen) {
  for (const char* dtype : {"fp32", "fp16", "bf16"}) {
    const std::string sizes = std::string("fwd ") + dtype +
                              " batch=1 num_heads=2 head_dim=64 lse seqlen=128:512";
    Solved right(sizes);
    const Solved mistaken(sizes + " softmax_scale=0.13125");  // 5% more than 1/8
    right.tensors.o.data = mistaken.tensors.o.data;
    right.tensors.lse.data = mistaken.tensors.lse.data;
    EXPECT_FALSE(right.verdict().lse.passed()) << dtype;
    EXPECT_FALSE(right.verdict().o.passed()) << dtype;
  }
}

TEST(Tolerance, GrowsWithTheRoundingOfTheDtype) {
  const auto of = [](const char* dtype) {
    return output_tolerance(
        parse_problem(std::string("fwd ") + dtype + " batch=1 num_heads=1 seqlen=512 head_dim=64"),
        4.0);
  };
  EXPECT_LT(of("fp32").rtol, 1e-6);
  EXPECT_LT(of("fp32").atol, 2e-5);
  EXPECT_NEAR(of("bf16").rtol / of("fp16").rtol, 8, 1e-9);
  EXPECT_NEAR(of("bf16").spread_atol / of("fp16").spread_atol, 8, 1e-9);
}

TEST(Tolerance, IsNoMoreThanTheRoundingsThatItStandsFor) {
  constexpr double kMaxAbsV = 4;
  const struct {
    const char* dtype;
    double unit;  // half a unit of a number's last place, relative to it
  } cases[] = {{"fp32", 0x1p-24}, {"fp16", 0x1p-11}, {"bf16", 0x1p-8}};
  for (const auto& [dtype, unit] : cases) {
    const Problem p = parse_problem(std::string("fwd ") + dtype +
                                    " batch=1 num_heads=1 seqlen=512 head_dim=64");
    const Tolerance tolerance = output_tolerance(p, kMaxAbsV);
    // Four keys of equal weight have the spread 1/2, and roundings of their probabilities that all
    // go one way move the output by as much as one rounding of the largest value.
    EXPECT_DOUBLE_EQ(tolerance.spread_atol * 0.5, unit * kMaxAbsV) << dtype;
    EXPECT_DOUBLE_EQ(tolerance.rtol, 3 * unit) << dtype;  // twice of a probability, once of o
    EXPECT_EQ(tolerance.product_spread_atol, 0) << dtype << " without a rotation";
    const double absolute = std::string(dtype) == "fp16" ? 0x1p-24 : 0;
    EXPECT_NEAR(tolerance.atol - absolute, 1e-7 * (8 + std::sqrt(512.0)) * kMaxAbsV, 1e-15);
    EXPECT_DOUBLE_EQ(tolerance.score_atol, 0x1p-21 * kMaxAbsV) << dtype;
    const Tolerance lse = lse_tolerance(p);  // which is fp32 whatever the dtype
    EXPECT_NEAR(lse.atol, 1e-7 * (8 + std::sqrt(512.0)) + 1e-5, 1e-15) << dtype;
    EXPECT_EQ(lse.rtol, 0x1p-21) << dtype;
    EXPECT_EQ(lse.score_atol, 0x1p-21) << dtype;
    EXPECT_EQ(lse.spread_atol, 0) << dtype;
    EXPECT_EQ(lse.product_atol, 0) << dtype;
    // A rotation rounds both factors of a product: six times 0.8 of a rounding.
    const Problem rotated = parse_problem(to_string(p) + " rope=half");
    EXPECT_DOUBLE_EQ(lse_tolerance(rotated).product_atol, 5 * unit) << dtype;
    EXPECT_DOUBLE_EQ(output_tolerance(rotated, kMaxAbsV).product_spread_atol, 10 * unit * kMaxAbsV);
  }
}

TEST(Tolerance, EachPartIsOfItsOwnMagnitude) {
  EXPECT_EQ(allowed_error({.atol = 1}, 2, 3, 5, 7), 1);
  EXPECT_EQ(allowed_error({.rtol = 1}, -2, 3, 5, 7), 2);
  EXPECT_EQ(allowed_error({.spread_atol = 1}, 2, 3, 5, 7), 3);
  EXPECT_EQ(allowed_error({.score_atol = 1}, 2, 3, 5, 7), 5);
  EXPECT_EQ(allowed_error({.spread_score_atol = 1}, 2, 3, 5, 7), 15);
  EXPECT_EQ(allowed_error({.product_atol = 1}, 2, 3, 5, 7), 7);
  EXPECT_EQ(allowed_error({.product_spread_atol = 1}, 2, 3, 5, 7), 21);
}

TEST(Tolerance, OfTf32IsThatOfItsRoundingsAndNotMore) {
  const auto of = [](const char* options) {
    return output_tolerance(
        parse_problem(std::string("fwd batch=1 num_heads=1 seqlen=512 head_dim=64 ") + options),
        4.0);
  };
  EXPECT_NEAR(of("fp32 tf32").rtol, 0x1.8p-10, 1e-6);
  EXPECT_NEAR(of("fp32 tf32").spread_atol, 4 * 0x1.8p-11 * 4.0, 1e-5)
      << "of v and of probabilities";
  // Of 64 products, two roundings each, twice over, and independent of each other.
  EXPECT_DOUBLE_EQ(of("fp32 tf32").spread_score_atol, 4 * 0x1.8p-11 / 8 * 4.0);
  EXPECT_EQ(of("fp32").spread_score_atol, 0);
  // TF32 has three bits of mantissa more than bf16.
  const double of_row = allowed_error(of("fp32 tf32"), 0.1, 0.07, 8.0, 0.0);
  EXPECT_LT(of_row, 2 * allowed_error(of("bf16"), 0.1, 0.07, 8.0, 0.0));
  EXPECT_GT(of_row, 50 * allowed_error(of("fp32"), 0.1, 0.07, 8.0, 0.0));
}

TEST(Tolerance, SlightlyWrongScaleIsSeenWithTf32) {
  const std::string sizes = "fwd fp32 tf32 batch=1 num_heads=2 head_dim=64 lse seqlen=128:512";
  Solved right(sizes);
  const Solved mistaken(sizes + " softmax_scale=0.13125");  // 5% more than 1/8
  right.tensors.o.data = mistaken.tensors.o.data;
  right.tensors.lse.data = mistaken.tensors.lse.data;
  EXPECT_FALSE(right.verdict().lse.passed());
  EXPECT_FALSE(right.verdict().o.passed());
}

TEST(ReferenceFromOutputs, PassesAgainstItselfAndKnowsTheTypicalSpread) {
  Solved solved("fwd bf16 o=fp32 batch=1 num_heads=2 seqlen=64:256 head_dim=64 causal lse");
  const std::vector<QueryRow> rows = all_rows({solved.host.problem});
  std::vector<float> o, lse;
  for (const QueryRow& row : rows) {
    const auto* const from = static_cast<const float*>(solved.tensors.o.data) +
                             row.batch * solved.tensors.o.stride_batch +
                             row.head * solved.tensors.o.stride_head +
                             row.query * solved.tensors.o.stride_row;
    o.insert(o.end(), from, from + 64);
    lse.push_back(solved.tensors.lse.data[row.batch * solved.tensors.lse.stride_batch +
                                          row.head * solved.tensors.lse.stride_head + row.query]);
  }
  const Reference copy = reference_from_outputs({solved.host.problem}, rows, o, lse,
                                                solved.reference.max_abs_v);
  ASSERT_EQ(copy.rows, rows);
  EXPECT_TRUE(compare(solved.host.problem, solved.tensors, copy).passed());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_GT(copy.spread[i], 0.7 * solved.reference.spread[i]);
    EXPECT_LT(copy.spread[i], 3.0 * solved.reference.spread[i]);
    EXPECT_GT(copy.score_magnitude[i], 0.6 * solved.reference.score_magnitude[i]);
    EXPECT_LT(copy.score_magnitude[i], 2.5 * solved.reference.score_magnitude[i]);
  }
  EXPECT_THROW(reference_from_outputs({solved.host.problem}, rows, std::span(o).first(64), lse, 1),
               Error);
}

TEST(CompareRows, OutputsOfJustTheRowsAreComparedInTheirOrder) {
  const Problem problem = parse_problem(
      "fwd fp32 batch=3 num_heads=2 seqlen=40:60 head_dim=16:8 causal lse");
  const std::vector<QueryRow> rows = {{2, 1, 39}, {0, 0, 7}, {2, 0, 0}, {0, 0, 7}};
  std::vector<float> o, lse;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (int d = 0; d < 8; ++d) o.push_back(0.125f * static_cast<float>(i == 3 ? 1 : i) + d);
    lse.push_back(static_cast<float>(i == 3 ? 1 : i));
  }
  const Reference expected = reference_from_outputs({problem}, rows, o, lse, 1);
  EXPECT_TRUE(compare_rows(problem, o.data(), lse.data(), expected).passed());
  o[2 * 8 + 5] += 1;
  lse[1] += 1;
  const Verdict verdict = compare_rows(problem, o.data(), lse.data(), expected);
  EXPECT_EQ(verdict.o.wrong, 1);
  EXPECT_EQ(verdict.o.worst_row, (QueryRow{2, 0, 0})) << "where it is in the problem";
  EXPECT_EQ(verdict.o.worst_column, 5);
  EXPECT_EQ(verdict.lse.wrong, 1);
  EXPECT_EQ(verdict.lse.worst_row, (QueryRow{0, 0, 7}));
}

}  // namespace
}  // namespace attnforge
