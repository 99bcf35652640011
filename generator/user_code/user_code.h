// user_code.h - the user's own C++ in a problem: what its texts may hold, which arguments it has,
// and what can be known of it without a compiler. Texts are read as tokens, never rewritten.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge {

/// Most bytes of a text, and most arguments.
inline constexpr std::size_t kMostCodeBytes = 16 << 10;
inline constexpr std::size_t kMostCodeArguments = 32;

/// "float* slope[num_heads_q]" or "int window = 1024". Kernels take a value of 8 bytes for each: an
/// address, or a number in its low 4 bytes.
struct CodeArgument {
  enum class Type { kFloat, kInt, kFp16, kBf16, kBool };
  Type type = Type::kFloat;
  bool is_array = false;
  bool aligned = false;  // an array whose rows of keys are read at once
  std::string name;
  std::string extent{};  // of an array, between the brackets; "": not said
  double value = 0;      // of a number, where a run is made up
};

/// "float", "int", "fp16", "bf16", "bool".
std::string_view to_string(CodeArgument::Type type);
int size_bytes(CodeArgument::Type type);

/// The arguments of problem.args. Throws Error(kInvalidProblem) saying what is wrong, where, and
/// what is allowed.
std::vector<CodeArgument> code_arguments(std::string_view args);

/// Elements that an array has in tuning and in runs on made-up inputs: its extent with the sizes of
/// the problem in place of their names, at least 1; where it does not say one, more than one value
/// for each head and position would take.
std::int64_t array_elements(const CodeArgument& argument, const Problem& problem);
/// array_elements() of an extent without what it takes off: as many or more in all problems that
/// are no larger.
std::int64_t most_elements(const CodeArgument& argument, const Problem& problem);

/// The arrays of problem.dargs in their order, each by its place among the arguments of a valid
/// problem. A run has a word for each of them after those of all arguments: the address of its
/// gradient, an fp32 array of as many elements.
std::vector<std::size_t> places_of_dargs(const Problem& problem);

/// The aligned array that the score's text reads by rows of keys, by its place among the arguments
/// of a valid problem; their number where there is none.
std::size_t place_of_aligned(const std::vector<CodeArgument>& arguments);

/// Whether the aligned array alone has a gradient, and the score's text is "s" and what is added to
/// it.
bool adds_rows_alone(const Problem& problem);

/// Whether the score's text is a sum, and an element of the aligned array one of its summands.
bool adds_element(const Problem& problem);

/// Whether elements that the score reads of its aligned array are equally far apart for queries
/// that are neighbours.
bool reads_even_rows(const Problem& problem);

/// dargs="whole bias": each pair writes the gradient of an element of its own, pairs that are not
/// seen zeros, in the format of the array.
bool writes_dargs(const Problem& problem);

/// Words that a run has: for each argument, and for each gradient of one.
std::size_t code_words_of_run(const Problem& problem);

/// How many times the score's text reads arrays at most, as far as its words tell: 0 where some may
/// be read any number of times, or by another name. Those of problem.dargs alone count.
int most_array_reads(const Problem& problem);

/// Of arrays of dargs, that kernels take apart.
inline constexpr int kMostReadsAtOnce = 4;

/// Whether each element of dargs that a pair reads is chosen without its query, and read for every
/// pair, in kMostReadsAtOnce reads: then what queries add to it is added up first.
bool dargs_without_query(const Problem& problem);

/// Whether the problem has code of its own.
inline bool has_code(const Problem& problem) {
  return !problem.score.empty() || !problem.mask.empty();
}

/// The soft cap of a score text that is one and nothing else: X of "X * tanhf(s / X)" or "tanhf(s /
/// X) * X", a number. 0: it is another text.
float cap_of(const std::string& score);

/// Whether kernels have code for the problem's score text: not for one that is a cap and nothing
/// else, which is built in. Defined next to the built-in options (generator/shape.cpp).
bool has_score_code(const Problem& problem);

/// Throws Error(kInvalidProblem) for texts that cannot be expressions by themselves, whatever a
/// compiler thinks of what is in them: brackets that are not balanced, quotes, comments,
/// backslashes, directives, and all but printable ASCII and ends of lines.
void check_code(const Problem& problem);

/// Whether a score text is "s" and what is added to it, so that its derivative is 1: "s + bias[q]".
/// False for texts that are not seen to be.
bool adds_to_score(const std::string& score);

/// Whether the score's text is "s" and something that is added to it, the same for all queries that
/// share keys.
bool adds_term_of_key(const Problem& problem);

/// "" without code; else "_" and 8 hex digits of a hash of its texts: the end of a kernel's symbol.
std::string code_suffix(const Problem& problem);

/// Whether `text` names `name` ("head"), as a word of its own. An expression that does not cannot
/// depend on it.
bool names(std::string_view text, std::string_view name);

/// Whether the problem's mask text may depend on `name`: "batch", "head", "q", "k", ...
bool mask_depends_on(const Problem& problem, std::string_view name);

/// Whether `text` may read arrays at places that depend on the key: then a key outside of the
/// tensor must not come to it.
bool reads_by_key(std::string_view text, const std::vector<CodeArgument>& arguments);

}  // namespace attnforge
