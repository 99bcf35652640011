// sweep.h - many problems in one text: words with several values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnforge::cli {

/// The texts of all combinations, the last word's values fastest:
///   "fwd bf16,fp16 seqlen=512,1024 head_dim=64 causal,full"
/// is eight problems. A word "name=a,b" has values of a field, any other word with commas is a
/// choice of words, of which "full" stands for none (no mask). A text without commas is itself.
/// Throws Error(kInvalidProblem) for an empty value and for more than kMostProblems.
std::vector<std::string> expand_sweep(std::string_view text);

inline constexpr std::size_t kMostProblems = 10000;

}  // namespace attnforge::cli
