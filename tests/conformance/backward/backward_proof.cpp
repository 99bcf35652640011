#include "tests/conformance/backward/backward_proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <utility>

#include "reference/compare/gradient_tolerance.h"
#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "tests/conformance/proof.h"
#include "tests/support/plain/limits.h"

namespace attnforge::test {
namespace {

/// All rows, or a sample of each sequence and head: the first, the last, those around a multiple of
/// 128, and random ones. For sequences that are all full.
BackwardRows gradient_rows(const Sequences& sequences, int sampled) {
  if (sampled == 0) return all_backward_rows(sequences);
  const Problem& p = sequences.problem;
  BackwardRows rows;
  std::mt19937 random(kConformanceSeed);
  const auto sample = [&](std::int64_t heads, std::int64_t seqlen, const auto& add) {
    const int per_head = std::max(5, sampled / static_cast<int>(p.batch * heads));
    for (std::int64_t batch = 0; batch < p.batch; ++batch) {
      for (std::int64_t head = 0; head < heads; ++head) {
        for (const std::int64_t row :
             {std::int64_t{0}, std::int64_t{127}, std::int64_t{128}, seqlen - 1})
          add(batch, head, std::min(row, seqlen - 1));
        for (int i = 4; i < per_head; ++i)
          add(batch, head, static_cast<std::int64_t>(random() % static_cast<unsigned>(seqlen)));
      }
    }
  };
  sample(p.num_heads_q, p.seqlen_q, [&](std::int64_t batch, std::int64_t head, std::int64_t row) {
    rows.queries.push_back({batch, head, row});
  });
  sample(p.num_heads_kv, p.seqlen_kv, [&](std::int64_t batch, std::int64_t head, std::int64_t row) {
    rows.keys.push_back({batch, head, row});
  });
  return rows;
}

/// One gradient by the project's rule.
std::string beyond_plain(const Problem& problem, GradientName name, double plain_error,
                         const ReferenceGradient& expected, const Comparison& compared) {
  const double limit = plain_gradient_limit(problem, name, plain_error, expected);
  if (compared.max_error <= limit) return "";
  return fmt::format(
      "an error of {} where {} is the limit, as plain attention's in this dtype is off by {}; {}\n",
      compared.max_error, limit, plain_error, to_string(compared));
}

}  // namespace

BackwardExpectation::BackwardExpectation(const Problem& problem, const ConformanceCase& c)
    : host(make_host_problem(problem, kConformanceSeed, c.inputs, c.gaps, c.blocks)),
      reference(reference_gradients(
          problem, host.tensors(),
          gradient_rows(sequences_of(problem, host.tensors()), c.sampled_rows))),
      plain(plain_gradient_errors(problem, host.tensors(), reference)) {}

BackwardExpectation::BackwardExpectation(const Problem& problem, const CodeFunctions& code)
    : host(make_host_problem(problem, kConformanceSeed)) {
  set_forward_outputs(host, code);
  const Tensors tensors = host.tensors();
  reference = reference_gradients(problem, tensors,
                                  all_backward_rows(sequences_of(problem, tensors)), code);
  plain = plain_gradient_errors(problem, tensors, reference, code);
}

std::string fault_of(const BackwardExpectation& expected, HostProblem& after) {
  const Problem& problem = after.problem;
  std::string fault = after.trespass();
  if (!fault.empty()) fault += "\n";
  for (std::size_t storage = 0; storage < after.storages.size(); ++storage) {
    const auto at = static_cast<int>(storage);
    const bool is_output = at == after.dq.storage || at == after.dk.storage ||
                           at == after.dv.storage || (problem.sinks && at == after.dsinks.storage);
    if (!is_output && after.storages[storage] != expected.host.storages[storage])
      fault += "an input was written to\n";
  }
  const GradientVerdict verdict = compare_gradients(problem, after.tensors(), expected.reference);
  if (!verdict.passed()) fault += to_string(verdict) + "\n";
  const ReferenceGradients& right = expected.reference;
  fault += beyond_plain(problem, GradientName::kDq, expected.plain.dq, right.dq, verdict.dq);
  fault += beyond_plain(problem, GradientName::kDk, expected.plain.dk, right.dk, verdict.dk);
  fault += beyond_plain(problem, GradientName::kDv, expected.plain.dv, right.dv, verdict.dv);
  return fault;
}

std::string fault_of(const Compiled& compiled, const BackwardExpectation& expected,
                     GpuProblem& gpu) {
  if (!compiled.failure.empty()) return compiled.failure;
  const Loaded loaded(compiled);
  HostProblem first = after_run(loaded, gpu, expected.host);
  std::string fault = fault_of(expected, first);
  HostProblem second = after_run(loaded, gpu, expected.host);
  if (second.storages == first.storages) return fault;
  if (expected.host.problem.deterministic) fault += "a second run gave other bits\n";
  if (fault.empty()) fault = fault_of(expected, second);
  return fault;
}

}  // namespace attnforge::test
