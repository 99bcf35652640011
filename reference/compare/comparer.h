// comparer.h - one tensor against the oracle, element by element.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "reference/compare/outputs.h"
#include "reference/half.h"

namespace attnforge {

/// Takes the elements of one tensor, keeps the worst.
class Comparer {
 public:
  Comparer(std::string tensor, DType dtype) : dtype_(dtype) { result_.tensor = std::move(tensor); }

  void add(const QueryRow& row, int column, double actual, double expected, double allowed) {
    ++result_.elements;
    const double as_stored = round_to(dtype_, static_cast<float>(expected));
    double badness;  // at most 1 is right
    if (std::isfinite(actual) && std::isfinite(expected)) {
      const double error = std::abs(actual - expected);
      result_.max_error = std::max(result_.max_error, error);
      result_.max_abs_expected = std::max(result_.max_abs_expected, std::abs(expected));
      product_ += actual * expected;
      actual_square_ += actual * actual;
      expected_square_ += expected * expected;
      // Both 0 (or an infinite allowance against an error) must not become NaN.
      badness = error <= allowed
                    ? (allowed > 0 && std::isfinite(allowed) ? error / allowed : 0.0)
                    : (allowed > 0 ? error / allowed : std::numeric_limits<double>::max());
    } else {
      const bool same = std::isnan(expected) ? std::isnan(actual) : actual == as_stored;
      badness = same ? 0.0 : std::numeric_limits<double>::infinity();
      if (!same) ++result_.nonfinite_wrong;
    }
    if (badness > 1.0) ++result_.wrong;
    if (badness <= worst_) return;
    worst_ = badness;
    result_.worst_row = row;
    result_.worst_column = column;
    result_.worst_actual = actual;
    result_.worst_expected = expected;
    result_.worst_allowed = allowed;
  }

  Comparison take() {
    const double norms = std::sqrt(actual_square_) * std::sqrt(expected_square_);
    if (norms > 0) result_.cosine = product_ / norms;
    if (norms == 0 && actual_square_ + expected_square_ > 0) result_.cosine = 0;
    return std::move(result_);
  }

 private:
  DType dtype_;
  Comparison result_;
  double worst_ = -1;
  double product_ = 0, actual_square_ = 0, expected_square_ = 0;
};

}  // namespace attnforge
