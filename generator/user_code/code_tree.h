// code_tree.h - a text of the user's C++ as a tree of operations: the one reader of expressions.
// Numbers, positions, lengths, arguments, operators and functions are what a CPU can compute; what
// only a compiler understands is a node of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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
  kCall,
  kUnknown,  // a name, call or element that no library or argument has
  kOpaque    // a part that only a compiler understands: a lambda, a pointer, an assignment, ...
};

/// An operation on nodes before it, and its place in the text without brackets around it. Numbers
/// are doubles, which hold ints of 32 bits.
struct CodeNode {
  CodeOp op = CodeOp::kNumber;
  int a = -1, b = -1, c = -1;
  double number = 0;                          // kNumber
  std::size_t argument = 0;                   // kArgument, kElement
  CodeArgument::Type type{};                  // kElement
  const LibraryFunction* function = nullptr;  // kCall
  bool is_float = false;
  std::uint32_t begin = 0, end = 0;        // in the text
  std::uint32_t left_end = 0, middle = 0;  // of two operands: where the left and the right one
                                           // end and begin, brackets included
};

/// The last node is the text's value.
struct CodeTree {
  std::vector<CodeNode> nodes;
  std::string unknown;         // "" or what a CPU cannot compute first: "it calls sinpif"
  std::size_t unknown_at = 0;  // where in the text
  bool assigns = false;        // it may change what it names: its terms mean nothing by themselves

  const CodeNode& operator[](int node) const { return nodes[node]; }
  /// A node and all that it is computed from.
  std::span<const CodeNode> under(int node) const;
};

/// The kind of a text: a mask's does not know `s`. A tree takes time in proportion to the text's
/// length.
enum class CodeText { kScore, kMask };
CodeTree code_tree(std::string_view text, CodeText kind,
                   const std::vector<CodeArgument>& arguments);

/// The nodes that && joins in the text's order; the last node alone if there is none.
std::vector<int> terms_of(const CodeTree& tree, std::string_view text);

}  // namespace attnforge
