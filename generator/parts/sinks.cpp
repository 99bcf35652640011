// sinks.cpp - the logits of sinks in a run, and their gradients.
#include <fmt/format.h>

#include "generator/parts/part.h"
#include "generator/tensors/operand_list.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {
namespace {

void add_sinks(OperandList& list) {
  list.add_words(operand<&HostTensors::sinks, &Tensors::sinks>("sinks", Operand::Role::kInput),
                 list.problem.num_heads_q);
}

void add_dsinks(OperandList& list) {
  if (!is_backward(list.problem)) return;
  Operand& dsinks = list.add_words(
      operand<&HostTensors::dsinks, &Tensors::gradients, &Gradients::dsinks>(
          "dsinks", Operand::Role::kOutput),
      list.problem.num_heads_q);
  dsinks.added_to = list.problem.accumulate;
  dsinks.of_heads = true;
}

bool sinks_good(const Problem& problem, std::uint64_t, const Tensors& t) {
  return words_good(t.sinks) && (!is_backward(problem) || words_good(t.gradients.dsinks));
}

/// A number for each query head.
void check_of_heads(std::string_view name, const float* data, std::string_view what,
                    const Problem& problem) {
  check_address(name, data, alignof(float),
                fmt::format("but the problem says sinks; give it {} of {} query heads, fp32 in "
                            "device memory",
                            what, problem.num_heads_q));
}

void explain_sinks(const Problem& problem, const Tensors& t) {
  check_of_heads("sinks", t.sinks, "the logits", problem);
  if (is_backward(problem))
    check_of_heads("dsinks", t.gradients.dsinks, "memory for the gradients of the sinks", problem);
}

constexpr HeadNumbers kSinks{"sinks",         "sinks",
                             "a logit",       [](const Problem& p) { return p.sinks; },
                             &Tensors::sinks, &HostTensors::sinks};

}  // namespace

extern const ProblemPart sinks_of_problem;
constinit const ProblemPart sinks_of_problem{.in = kSinks.in,
                                             .of_heads = &kSinks,
                                             .add_inputs = add_sinks,
                                             .add_outputs = add_dsinks,
                                             .good = sinks_good,
                                             .explain = explain_sinks};

}  // namespace attnforge
