#include "tests/conformance/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

#include "reference/compare/outputs.h"
#include "reference/sequences.h"
#include "tests/support/plain/attention.h"
#include "tests/support/plain/limits.h"

namespace attnforge::test {
namespace {

/// All rows, or a sample: of every head the first, the last, those around a multiple of 128, and
/// random ones.
std::vector<QueryRow> rows_to_compare(HostProblem& host, int sampled) {
  const Problem& problem = host.problem;
  const std::vector<QueryRow> all = all_rows(sequences_of(problem, host.tensors()));
  if (sampled == 0) return all;
  std::vector<QueryRow> rows;
  std::mt19937 random(kConformanceSeed);
  const int per_head = std::max<int>(
      5, sampled / static_cast<int>(problem.batch * problem.num_heads_q));
  for (std::int64_t batch = 0; batch < problem.batch; ++batch) {
    for (std::int64_t head = 0; head < problem.num_heads_q; ++head) {
      for (const std::int64_t query :
           {std::int64_t{0}, std::int64_t{127}, std::int64_t{128}, problem.seqlen_q - 1}) {
        rows.push_back({batch, head, std::min(query, problem.seqlen_q - 1)});
      }
      for (int i = 4; i < per_head; ++i) {
        rows.push_back(
            {batch, head,
             static_cast<std::int64_t>(random() % static_cast<unsigned>(problem.seqlen_q))});
      }
    }
  }
  return rows;
}

}  // namespace

Expectation::Expectation(const Problem& problem, const ConformanceCase& c)
    : host(make_host_problem(problem, kConformanceSeed, c.inputs, c.gaps, c.blocks)),
      reference(
          reference_attention(problem, host.tensors(), rows_to_compare(host, c.sampled_rows))),
      plain_error(plain_low_precision_error(problem, host.tensors(), reference)) {}

HostProblem after_run(const Loaded& loaded, GpuProblem& gpu, const HostProblem& host) {
  gpu.upload(host);
  Stream stream;
  const Buffer workspace = loaded.make_workspace();
  check(driver().cuCtxSynchronize(), "wait for the uploads");
  loaded.run(gpu.tensors, workspace, stream.get());
  stream.synchronize();
  HostProblem after = host;
  gpu.download(after);
  return after;
}

std::string fault_of(const Expectation& expected, HostProblem& after) {
  const Problem& problem = after.problem;
  const Tensors tensors = after.tensors();
  std::string fault = after.trespass();
  if (!fault.empty()) fault += "\n";
  for (const PlacedTensor* input :
       {&after.q, &after.k, &after.v, &after.rope_cos, &after.rope_sin, &after.lengths_q,
        &after.lengths_kv, &after.mask_row_begin, &after.mask_columns, &after.mask_bits,
        &after.mask_bit_blocks, &after.page_table}) {
    const auto storage = static_cast<std::size_t>(input->storage);
    if (after.storages[storage] != expected.host.storages[storage])
      fault += "an input was written to\n";
  }
  const Verdict verdict = compare(problem, tensors, expected.reference);
  if (!verdict.passed()) fault += to_string(verdict) + "\n";
  double score_magnitude = 0;
  for (const double of_row : expected.reference.score_magnitude)
    score_magnitude = std::max(score_magnitude, of_row);
  const double limit = plain_rule_limit(problem, expected.plain_error, verdict.o.max_abs_expected,
                                        score_magnitude);
  if (!(verdict.o.max_error <= limit)) {
    fault += fmt::format(
        "an error of {} where {} is the limit, as plain attention in this dtype is "
        "off by {}; {}\n",
        verdict.o.max_error, limit, expected.plain_error, to_string(verdict.o));
  }
  return fault;
}

std::string fault_of(const Compiled& compiled, const Expectation& expected, GpuProblem& gpu) {
  if (!compiled.failure.empty()) return compiled.failure;
  const Loaded loaded(compiled);
  HostProblem first = after_run(loaded, gpu, expected.host);
  std::string fault = fault_of(expected, first);
  if (after_run(loaded, gpu, expected.host).storages != first.storages)
    fault += "a second run gave other bits\n";
  return fault;
}

}  // namespace attnforge::test
