// rope_test.cpp - the rotary embedding of the oracle: rotations by hand, what follows from them,
// and what is refused.
#include "reference/parts/rope.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>

#include "attnforge/error.h"
#include "reference/attention.h"
#include "reference/compare/outputs.h"
#include "reference/half.h"
#include "tests/support/host_problem.h"
#include "tests/support/plain/attention.h"

namespace attnforge {
namespace {

using test::HostProblem;
using test::make_host_problem;
using testing::AllOf;
using testing::DoubleNear;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pointwise;

Tensors with_tables(const float* cos, const float* sin) {
  Tensors tensors;
  tensors.rope.cos = cos;
  tensors.rope.sin = sin;
  return tensors;
}

std::vector<double> rotated(const std::string& options, std::vector<double> row) {
  // Row 1 of the tables: a quarter turn, a half turn, nothing, three quarters.
  static const float cos[] = {9, 9, 9, 9, 0, -1, 1, 0}, sin[] = {9, 9, 9, 9, 1, 0, 0, -1};
  rotate(parse_problem("fwd fp32 head_dim=8 " + options), with_tables(cos, sin), 1, row.data());
  return row;
}

TEST(Rotate, TurnsPairsThatBelongTogether) {
  const std::vector<double> row = {1, 2, 3, 4, 5, 6, 7, 8};
  EXPECT_EQ(rotated("", row), row);
  EXPECT_THAT(rotated("rope=interleaved", row), ElementsAre(-2, 1, -3, -4, 5, 6, 8, -7));
  EXPECT_THAT(rotated("rope=half", row), ElementsAre(-5, -2, 3, 8, 1, -6, 7, -4));
}

TEST(Rotate, LeavesElementsFromRopeDimOnAlone) {
  static const float cos[] = {0, 0, 0, 0}, sin[] = {1, 1, 1, 1};
  std::vector<double> row(16);
  for (int d = 0; d < 16; ++d) row[static_cast<std::size_t>(d)] = d;
  rotate(parse_problem("fwd fp32 head_dim=16 rope=half rope_dim=8"), with_tables(cos, sin), 0,
         row.data());
  EXPECT_THAT(row, ElementsAre(-4, -5, -6, -7, 0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15));
}

TEST(RopeTables, AreThoseOfThePaper) {
  const HostRopeTables tables = rope_tables(8, 3, 10000);
  ASSERT_EQ(tables.cos.size(), 12u);
  ASSERT_EQ(tables.sin.size(), 12u);
  for (int i = 0; i < 4; ++i) {
    const double frequency = std::pow(10000, -2.0 * i / 8);
    const auto at = static_cast<std::size_t>(i);
    EXPECT_EQ(tables.cos[at], 1.0f);
    EXPECT_EQ(tables.sin[at], 0.0f);
    EXPECT_FLOAT_EQ(tables.cos[8 + at], static_cast<float>(std::cos(2 * frequency)));
    EXPECT_FLOAT_EQ(tables.sin[8 + at], static_cast<float>(std::sin(2 * frequency)));
  }
}

/// Tables whose row r turns the first pair by r * `degrees` and the others not at all.
struct OnePair {
  std::vector<float> cos, sin;
  OnePair(int rows, double degrees) {
    for (int r = 0; r < rows; ++r) {
      const double angle = r * degrees * std::numbers::pi / 180;
      for (int i = 0; i < 4; ++i) {
        cos.push_back(i == 0 ? static_cast<float>(std::cos(angle)) : 1.0f);
        sin.push_back(i == 0 ? static_cast<float>(std::sin(angle)) : 0.0f);
      }
    }
  }
};

TEST(ReferenceByHand, RopeTurnsScoresByTheDistanceOfKeyAndQuery) {
  // Two queries and three keys, all (1, 0, ...): a score is cos(60 degrees * distance).
  const Problem problem = parse_problem(
      "fwd fp32 num_heads=1 seqlen=2:3 head_dim=8 softmax_scale=1 lse rope=half");
  HostProblem host = make_host_problem(problem, 1);
  Tensors tensors = host.tensors();
  const auto set = [](const Tensor& tensor, int rows, auto value) {
    for (int row = 0; row < rows; ++row)
      for (int d = 0; d < 8; ++d)
        store_element(DType::kFp32, tensor.data, row * tensor.stride_row + d, value(row, d));
  };
  set(tensors.q, 2, [](int, int d) { return d == 0 ? 1.0f : 0.0f; });
  set(tensors.k, 3, [](int, int d) { return d == 0 ? 1.0f : 0.0f; });
  set(tensors.v, 3, [](int row, int) { return static_cast<float>(row); });
  const OnePair tables(10, 60);
  tensors.rope.cos = tables.cos.data();
  tensors.rope.sin = tables.sin.data();
  tensors.rope.rows = 10;
  // Query 0 stands at key 1, query 1 at key 2.
  const double e0 = std::exp(1.0), e1 = std::exp(0.5), e2 = std::exp(-0.5);
  for (const std::int64_t offset : {0, 4, 7}) {
    tensors.rope.offset = offset;
    const Reference r = reference_attention(problem, tensors);
    EXPECT_NEAR(r.lse[0], std::log(e1 + e0 + e1), 1e-6);
    EXPECT_NEAR(r.lse[1], std::log(e2 + e1 + e0), 1e-6);
    EXPECT_NEAR(r.o[0], (e0 + 2 * e1) / (e1 + e0 + e1), 1e-6);
    EXPECT_NEAR(r.o[8], (e1 + 2 * e0) / (e2 + e1 + e0), 1e-6);
    // The only product that is not 0 is that of the first elements, and those of the turned pair.
    EXPECT_LE(r.product_magnitude[0], 1 + 1e-6);
    EXPECT_GE(r.product_magnitude[0], 0.7);
  }
}

TEST(ReferenceWithRope, OnlyDistancesCount) {
  const Problem problem = parse_problem(
      "fwd fp32 batch=2 num_heads=4:2 seqlen=9:14 head_dim=24 causal lse rope=interleaved "
      "rope_dim=16");
  HostProblem host = make_host_problem(problem, 3);
  Tensors tensors = host.tensors();
  const HostRopeTables tables = rope_tables(16, 60);
  tensors.rope.cos = tables.cos.data();
  tensors.rope.sin = tables.sin.data();
  tensors.rope.rows = 60;
  tensors.rope.offset = 0;
  const Reference first = reference_attention(problem, tensors);
  tensors.rope.offset = 46;
  const Reference last = reference_attention(problem, tensors);
  EXPECT_THAT(last.o, Pointwise(DoubleNear(1e-5), first.o));
  EXPECT_THAT(last.lse, Pointwise(DoubleNear(1e-5), first.lse));
}

/// Attention over q and k that were rotated beforehand and rounded, as a kernel rotates them:
/// rounded, and not rounded.
TEST(ToleranceWithRope, AllowsTheRoundingOfRotatedRowsAndNotTheLackOfRotation) {
  for (const std::string dtype : {"bf16", "fp16"}) {
    for (const std::string rope : {"half", "interleaved"}) {
      const std::string sizes = "fwd " + dtype +
                                " num_heads=2 seqlen=200:300 head_dim=128 lse o=fp32 ";
      const Problem problem = parse_problem(sizes + "rope=" + rope);
      HostProblem host = make_host_problem(problem, 5);
      Tensors tensors = host.tensors();
      const Reference expected = reference_attention(problem, tensors);

      // The same tensors rotated, attended to without rope.
      HostProblem turned = make_host_problem(problem, 5);
      const Tensors t = turned.tensors();
      const auto turn = [&](const Tensor& tensor, std::int64_t rows, auto row_of) {
        for (std::int64_t head = 0; head < 2; ++head) {
          for (std::int64_t row = 0; row < rows; ++row) {
            const std::int64_t at = head * tensor.stride_head + row * tensor.stride_row;
            double values[128];
            load_elements(problem.dtype_q, tensor.data, at, 128, values);
            rotate(problem, t, row_of(row), values);
            for (int d = 0; d < 128; ++d)
              store_element(problem.dtype_q, tensor.data, at + d, static_cast<float>(values[d]));
          }
        }
      };
      turn(t.q, 200, [&](std::int64_t row) { return rope_row_of_query(problem, t, row); });
      turn(t.k, 300, [&](std::int64_t row) { return rope_row_of_key(t, row); });
      const Problem without = parse_problem(sizes);
      const auto verdict = [&](const Tensors& inputs) {
        const Reference actual = reference_attention(without, inputs);
        std::vector<float> o(actual.o.begin(), actual.o.end());
        std::vector<float> lse(actual.lse.begin(), actual.lse.end());
        Tensors outputs = contiguous_tensors(problem);
        // The rows of a reference come head after head.
        outputs.o = {o.data(), 0, 128, 200 * 128};
        outputs.lse = {lse.data(), 0, 200};
        return compare(problem, outputs, expected);
      };
      const Verdict rounded = verdict(t);
      EXPECT_TRUE(rounded.passed()) << to_string(rounded);
      EXPECT_GT(rounded.o.max_error, 0) << "roundings leave a trace";
      const Verdict unturned = verdict(tensors);
      EXPECT_FALSE(unturned.o.passed());
      EXPECT_GT(unturned.o.wrong, unturned.o.elements / 4) << to_string(unturned.o);
      EXPECT_FALSE(unturned.lse.passed());
    }
  }
}

TEST(PlainWithRope, RotatesAndIsNotFarOff) {
  const Problem problem = parse_problem(
      "fwd bf16 num_heads=2 seqlen=40:60 head_dim=64 causal rope=half");
  HostProblem host = make_host_problem(problem, 5);
  const Tensors tensors = host.tensors();
  const Reference expected = reference_attention(problem, tensors);
  const double error = plain_low_precision_error(problem, tensors, expected);
  EXPECT_GT(error, 1e-3);
  EXPECT_LT(error, 5e-2);
}

}  // namespace
}  // namespace attnforge
