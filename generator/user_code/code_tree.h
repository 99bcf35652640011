// code_tree.h - a text of the user's C++ as a tree of operations, of what a CPU can compute:
// numbers, positions, lengths, arguments, operators and functions. What only a compiler understands
// is named.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "generator/user_code/library_functions.h"
#include "generator/user_code/user_code.h"

namespace attnforge {

enum class CodeOp {
  kNumber,
  kScore,  // s
  kBatch,
  kHead,
  kQ,
  kK,
  kSeqlenQ,
  kSeqlenKv,
  kArgument,  // a number of the run
  kElement,   // of an array, at `a`
  kNegative,
  kNot,
  kInverse,
  kWhole,
  kBool,
  kFloat,
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
  kChoice,
  kCall
};

/// An operation on nodes before it. Numbers are doubles, which hold ints of 32 bits.
struct CodeNode {
  CodeOp op = CodeOp::kNumber;
  int a = -1, b = -1, c = -1;
  double number = 0;                          // kNumber
  std::size_t argument = 0;                   // kArgument, kElement
  CodeArgument::Type type{};                  // kElement
  const LibraryFunction* function = nullptr;  // kCall
  bool is_float = false;
};

/// The last node is the text's value.
struct CodeTree {
  std::vector<CodeNode> nodes;
  std::string unknown;         // "" or why there is none: "it calls sinpif"
  std::size_t unknown_at = 0;  // where in the text
};

/// Which text a tree is of; a mask's does not know `s`. A tree takes time in proportion to the
/// text's length.
enum class CodeText { kScore, kMask };
CodeTree code_tree(std::string_view text, CodeText kind,
                   const std::vector<CodeArgument>& arguments);

}  // namespace attnforge
