// gradients.h - gradients against the oracle.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/compare/outputs.h"
#include "reference/gradients.h"

namespace attnforge {

/// tensors.gradients.dq, dk and dv (host memory) in the rows of `expected`, with
/// gradient_tolerance(). dsinks passes unseen when the problem has none.
struct GradientVerdict {
  Comparison dq, dk, dv, dsinks;
  std::vector<Comparison> dargs{};  // compare_darg() of each; compare_gradients() has none
  bool passed() const {
    return dq.passed() && dk.passed() && dv.passed() && dsinks.passed() &&
           std::ranges::all_of(dargs, &Comparison::passed);
  }
};
GradientVerdict compare_gradients(const Problem& problem, const Tensors& tensors,
                                  const ReferenceGradients& expected);
/// The gradient of one array, in host memory, with one of ReferenceGradients::dargs. An element of
/// it is the key of its row. `stored`: what it was rounded to.
Comparison compare_darg(const Problem& problem, const float* actual,
                        const ReferenceGradient& expected, DType stored = DType::kFp32);
/// A line of each that there is.
std::string to_string(const GradientVerdict& verdict);

}  // namespace attnforge
