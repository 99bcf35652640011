// any_case.h - a problem that nobody chose, with how its tensors lie in memory and what is in them.
#pragma once

#include <vector>

#include "tests/conformance/cases.h"
#include "tests/support/any_problem.h"

namespace attnforge::test {

/// The oracle has a CPU, and the tensors go to the GPU and back.
inline constexpr double kMostFlops = 1e9, kMostBytes = 64 << 20;

struct AnyCase {
  Problem problem;
  ConformanceCase how;
};

inline constexpr MostSizes kMostOfACase{
    .batch_bits = 8, .heads_bits = 7, .seqlen_bits = 13, .flops = kMostFlops, .bytes = kMostBytes};

/// By default small enough for the oracle to solve it in a second. `choices`: see
/// any_problem.h.
template <class Choices>
AnyCase any_case(Choices& choices, Op op = Op::kForward, MostSizes most = kMostOfACase) {
  AnyCase c;
  Problem& p = c.problem;
  most.gradients = false;  // not by chance
  p = op == Op::kForward ? any_problem(choices, most) : any_backward_problem(choices, most);
  // One seed for the inputs is enough: they are N(0, 1) or one of the hard kinds, which are made
  // for scores of the usual scale.
  static const std::vector<Inputs> kInputs = {
      Inputs::kNormal,           Inputs::kNormal,     Inputs::kStronglyNegative,
      Inputs::kStronglyPositive, Inputs::kLarge,      Inputs::kGrowingToFirst,
      Inputs::kGrowingToLast,    Inputs::kEqualScores};
  const Inputs inputs = choices.among(kInputs);
  if (p.softmax_scale == 0 && p.rope == Rope::kNone) c.how.inputs = inputs;
  const auto gap = [&] { return static_cast<int>(choices.between(0, 2)); };
  c.how.gaps = {.row = gap(), .head = gap(), .rows_after = gap()};
  if (p.layout == Layout::kBhsd) c.how.gaps.head = 0;
  return c;
}

}  // namespace attnforge::test
