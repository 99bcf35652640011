// code_texts.h - ready-made texts for Problem::score and Problem::mask (docs/USER_CODE.md).
#pragma once

#include <cstdint>
#include <string>

#include "attnforge/problem.h"

namespace attnforge {

/// Texts as a Problem has them. Each argument in `args` is a word of a run's code_arguments.
struct CodeTexts {
  std::string score{}, mask{}, args{};
};

/// s + slope[head] * (k - q): linear biases (Press et al. 2021). args: float slope [num_heads_q].
ATTNFORGE_API CodeTexts alibi();

/// s plus an element of a table by the distance k - q, which is cut off at `reach` on both sides
/// (Shaw et al. 2018, Raffel et al. 2020). args: float relative_bias
/// [num_heads_q * (2 * reach + 1)].
ATTNFORGE_API CodeTexts relative_bias(std::int64_t reach);

/// cap * tanh(s / cap), as the built-in soft cap.
ATTNFORGE_API CodeTexts tanh_cap(float cap);

/// Queries see keys of their own document. args: int document_q [batch * seqlen_q] and document_kv
/// [batch * seqlen_kv], any numbers.
ATTNFORGE_API CodeTexts documents();

/// Causal, and all see the first keys of their sequence. args: int prefix [batch], how many.
ATTNFORGE_API CodeTexts prefix_lm();

/// Every `step`-th key up to `reach` positions away, on both sides.
ATTNFORGE_API CodeTexts dilated_window(std::int64_t reach, std::int64_t step);

/// Adds texts to those that the problem has: a mask must let a query see a key as well, a score
/// takes what the one before it gives, arguments come after the others. Throws
/// Error(kInvalidProblem) where the result is not valid: two arguments of one name, for one.
ATTNFORGE_API void add_code(Problem& problem, const CodeTexts& texts);

}  // namespace attnforge
