// code_cases.h - texts of the user's, each with the same in C++, and what they name in memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ostream>
#include <span>
#include <vector>

#include "attnforge/code_texts.h"
#include "reference/attention.h"
#include "reference/parts/user_code.h"
#include "runtime/memory.h"

namespace attnforge::test {

struct CodeCase {
  const char* name;
  CodeTexts texts;
  CodeFunctions functions;
  std::vector<const char*> problems;
};
void PrintTo(const CodeCase& c, std::ostream* out);

const std::vector<CodeCase>& code_cases();

/// Texts that read arrays whose gradients are wanted: functions.score_reads says which elements.
/// functions.dargs is of the problem: fill it in.
struct DargsCase {
  const char* name;
  CodeTexts texts;
  const char* dargs;
  CodeFunctions functions;
};
void PrintTo(const DargsCase& c, std::ostream* out);

const std::vector<DargsCase>& dargs_cases();
/// Where the element of a pair is in the array "squares" of some, which has room for all problems.
std::int64_t place_in_squares(const CodePair& p);
/// Problems that each of them is tried with.
const std::vector<const char*>& dargs_problems();

/// A run's words, and the memory that they point to.
struct RunArguments {
  std::vector<Buffer> arrays;
  std::vector<std::uint64_t> words;

  template <class T>
  void add_array(const std::vector<T>& values) {
    arrays.push_back(Buffer::of(std::as_bytes(std::span(values))));
    words.push_back(reinterpret_cast<std::uintptr_t>(arrays.back().data()));
  }
};

/// By the names in problem.args, in their order there.
RunArguments arguments_of(const Problem& p);
/// The same of a drawn text (tests/support/any_text.h).
RunArguments arguments_of_text(const Problem& p);

}  // namespace attnforge::test
