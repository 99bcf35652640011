// library_functions.h - the functions of CUDA's library that a CPU computes in a text's place, with
// their derivatives.
#pragma once

#include <string_view>

namespace attnforge {

/// A function of one or two floats.
struct LibraryFunction {
  std::string_view name;  // without the f
  int operands;
  double (*value)(double x, double y);
  /// The derivative by operand 0 or 1.
  double (*slope)(double x, double y, int of);
};

/// The function of a name, with an f at its end or without; null: there is none.
const LibraryFunction* library_function(std::string_view name);

}  // namespace attnforge
