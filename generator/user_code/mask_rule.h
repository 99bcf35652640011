// mask_rule.h - a mask's text asked on the CPU, for pictures of it: expressions of numbers,
// positions, sizes and arguments. What only a compiler understands is said by name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"
#include "generator/user_code/user_code.h"

namespace attnforge {

class MaskRule {
 public:
  struct Pair {
    std::int64_t batch = 0, head = 0, q = 0, k = 0;
  };

  /// Of a mask text of the problem, or what windows leave of one. `arrays` are the bytes of each of
  /// the problem's arguments, borrowed; empty ones are numbers, or not known. Numbers are what
  /// problem.args gives them.
  MaskRule(std::string_view text, const Problem& problem,
           std::span<const std::span<const std::byte>> arrays);

  /// "" if sees() can be asked, else why not: "it calls tanhf".
  const std::string& unknown() const { return unknown_; }

  /// Elements outside of an array are 0. Thread-safe.
  bool sees(const Pair& pair) const { return value(root_, pair) != 0; }

 private:
  friend class MaskRuleReader;
  enum class Op {
    kNumber,
    kBatch,
    kHead,
    kQ,
    kK,
    kElement,
    kNegative,
    kNot,
    kInverse,
    kWhole,
    kBool,
    kAbs,
    kTimes,
    kDivide,
    kDivideWhole,
    kRest,
    kPlus,
    kMinus,
    kLeft,
    kRight,
    kBelow,
    kAtMost,
    kAbove,
    kAtLeast,
    kEqual,
    kUnequal,
    kBits,
    kOtherBits,
    kAnyBits,
    kAnd,
    kOr,
    kMin,
    kMax,
    kChoice
  };
  /// An operation on nodes before it. Numbers are doubles, which hold ints of 32 bits.
  struct Node {
    Op op = Op::kNumber;
    int a = -1, b = -1, c = -1;
    double number = 0;      // kNumber
    std::size_t array = 0;  // kElement
    bool is_float = false;
  };
  struct Array {
    CodeArgument::Type type;
    std::span<const std::byte> bytes;
  };

  double value(int node, const Pair& pair) const;
  double element(const Array& array, double index) const;

  std::vector<Node> nodes_;
  std::vector<Array> arrays_;
  int root_ = 0;
  std::string unknown_;
};

}  // namespace attnforge
