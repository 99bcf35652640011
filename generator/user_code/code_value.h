// code_value.h - a text's tree computed on the CPU in fp64, with its derivatives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "generator/user_code/code_tree.h"

namespace attnforge {

/// What a text sees of a pair.
struct CodePlace {
  double s = 0;
  std::int64_t batch = 0, head = 0, q = 0, k = 0, seqlen_q = 0, seqlen_kv = 0;
};

/// An argument of a run: a number, or the bytes of an array, borrowed.
struct CodeValue {
  double number = 0;
  std::span<const std::byte> bytes{};
};

/// The value of a tree without unknowns; `values` has one for each argument. Whatever a text says
/// nothing is read outside of an array: elements there are 0, and so is what a program could not
/// compute of whole numbers. Thread-safe.
double value_of(const CodeTree& tree, const CodePlace& place, std::span<const CodeValue> values);

/// Takes an argument, an element of it that is there, and the derivative of the value by what was
/// read of it.
using TakeRead = std::function<void(std::size_t argument, std::int64_t element, double slope)>;
/// The derivative of the same by s. Calls `read`, if there is one, for each read that the value
/// depends on. Where the text has a step or a corner it is that of the branch that was taken.
double slope_of(const CodeTree& tree, const CodePlace& place, std::span<const CodeValue> values,
                const TakeRead* read = nullptr);

}  // namespace attnforge
