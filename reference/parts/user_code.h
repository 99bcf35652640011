// user_code.h - the texts of a problem as functions in fp64, in place of a compiler.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "attnforge/plan.h"
#include "attnforge/problem.h"
#include "reference/attention.h"
#include "reference/gradients.h"

namespace attnforge {

/// A query and a key as the user's code sees them: positions in their sequence.
struct CodePair {
  std::int64_t batch = 0, head = 0, q = 0, k = 0, seqlen_q = 0, seqlen_kv = 0;
};

/// What the texts of a problem with code compute, in fp64; null where it has no such text.
struct CodeFunctions {
  std::function<double(double s, const CodePair&)> score;
  std::function<bool(const CodePair&)> mask;
  // The derivative of `score` by s; reference_attention() does not ask for it.
  std::function<double(double s, const CodePair&)> score_derivative{};

  // The arrays of problem.dargs, in their order: how many elements each has, and what its gradient
  // is added to; null: zeros.
  struct Darg {
    std::int64_t elements = 0;
    const float* before = nullptr;
  };
  std::vector<Darg> dargs{};
  // Calls add for each read that `score` makes of them: which array, which element, and the
  // derivative of the score with respect to what was read.
  using AddRead = std::function<void(std::size_t array, std::int64_t element, double derivative)>;
  std::function<void(double s, const CodePair&, const AddRead& add)> score_reads{};
};

/// Throws Error(kInvalidArgument) for a text without a function or a function without a text.
void check_code_functions(const Problem& problem, const CodeFunctions& code);

/// reference_attention() of a problem with code, whose texts are not read: `code` computes instead
/// of them. Its functions are called from several threads. Throws as check_code_functions().
Reference reference_attention(const Problem& problem, const Tensors& tensors,
                              std::span<const QueryRow> rows, const CodeFunctions& code,
                              int threads = 0);
/// reference_gradients() of a problem with code, by its score_derivative too, and with dargs its
/// score_reads.
ReferenceGradients reference_gradients(const Problem& problem, const Tensors& tensors,
                                       const BackwardRows& rows, const CodeFunctions& code,
                                       int threads = 0);

}  // namespace attnforge
