#include "attnforge/check.h"

#include <algorithm>
#include <random>
#include <set>
#include <vector>

#include "attnforge/block_mask.h"
#include "attnforge/error.h"
#include "generator/operands.h"
#include "generator/user_code.h"
#include "reference/attention.h"
#include "reference/compare.h"
#include "reference/half.h"
#include "reference/sequences.h"

namespace attnforge {
namespace {

/// Pointers into `host`, whose sizes are checked. The reference takes Tensors, whose pointers are
/// not const.
Tensors tensors_of(const Problem& problem, const HostTensors& host) {
  validate(problem);
  if (is_backward(problem)) {
    throw Error(ErrorCode::kUnsupported,
                "gradients are not computed on the CPU; compare with the family bwd_naive");
  }
  if (has_code(problem)) {
    throw Error(ErrorCode::kUnsupported,
                "the CPU cannot compute the texts of score and mask; compare with the family "
                "fwd_naive, which compiles them for the GPU");
  }
  const std::vector<Operand> list = operands(problem);
  check_sizes(problem, list, host);
  std::vector<void*> addresses;
  for (const Operand& operand : list)
    addresses.push_back(const_cast<std::byte*>(operand.content(host).data()));
  std::vector<std::uint64_t> code_words;
  Tensors tensors = bound_tensors(problem, list, addresses, host, code_words);
  tensors.code_arguments = nullptr;  // nothing here reads them
  check_sequences(sequences_of(problem, tensors));
  if (has_block_mask(problem)) block_mask_of(problem, host);  // checks it
  return tensors;
}

/// Up to `count` positions of a sequence: its ends, random borders of tiles, random ones.
std::set<std::int64_t> sample_positions(std::int64_t seqlen, std::int64_t count,
                                        std::mt19937_64& random) {
  constexpr std::int64_t
      kTile = 64;  // divides the query tiles of all families, or is divided by them
  std::set<std::int64_t> positions;
  const auto below = [&](std::int64_t end) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(end));
  };
  for (std::int64_t i = 0; i < count; ++i) {
    std::int64_t position = below(seqlen);
    if (i == 0 && count > 1) position = seqlen - 1;
    if (i == 1) position = 0;
    if (i >= 2 && i % 2 == 0)
      position = std::min(seqlen - 1, position / kTile * kTile + (i % 4 == 0 ? 0 : kTile - 1));
    positions.insert(position);
  }
  return positions;
}

/// Of all heads.
std::int64_t count_rows(const Sequences& sequences) {
  return total_queries(sequences) * sequences.problem.num_heads_q;
}

/// All rows, or as many as `max_work` allows: at least one, spread evenly over sequences and heads.
std::vector<QueryRow> rows_to_check(const Sequences& sequences, const CheckOptions& options) {
  const Problem& problem = sequences.problem;
  const std::int64_t groups = problem.batch * problem.num_heads_q;
  const double work = flops(sequences) / 2;
  if (options.max_work <= 0 || work <= options.max_work) return all_rows(sequences);

  const double row_work = work / static_cast<double>(count_rows(sequences));
  const auto affordable = static_cast<std::int64_t>(std::max(1.0, options.max_work / row_work));
  const std::int64_t sampled_groups = std::min(groups, affordable);
  std::mt19937_64 random(options.seed);
  std::vector<QueryRow> rows;
  for (std::int64_t i = 0; i < sampled_groups; ++i) {
    const std::int64_t group = i * groups / sampled_groups;
    const std::int64_t seqlen = problem_of_sequence(sequences, group / problem.num_heads_q)
                                    .seqlen_q;
    if (seqlen == 0) continue;
    for (std::int64_t query : sample_positions(seqlen, affordable / sampled_groups, random)) {
      rows.push_back({.batch = group / problem.num_heads_q,
                      .head = group % problem.num_heads_q,
                      .query = query});
    }
  }
  return rows;
}

CheckedElement element(const Comparison& c) {
  return {.batch = c.worst_row.batch,
          .head = c.worst_row.head,
          .row = c.worst_row.query,
          .dim = c.worst_column,
          .got = c.worst_actual,
          .expected = c.worst_expected,
          .allowed = c.worst_allowed};
}

}  // namespace

CheckReport check_output(const Problem& problem, const HostTensors& host,
                         const CheckOptions& options) {
  const Tensors tensors = tensors_of(problem, host);
  CheckReport report;
  const Sequences sequences = sequences_of(problem, tensors);
  report.rows_total = count_rows(sequences);
  if (report.rows_total == 0) {
    report.summary = "nothing to check: o is empty";
    return report;
  }
  const std::vector<QueryRow> rows = rows_to_check(sequences, options);
  const Verdict verdict = compare(problem, tensors, reference_attention(problem, tensors, rows));
  report.ok = verdict.passed();
  report.rows_checked = static_cast<std::int64_t>(rows.size());
  report.wrong = verdict.o.wrong + verdict.lse.wrong;
  report.nonfinite_wrong = verdict.o.nonfinite_wrong + verdict.lse.nonfinite_wrong;
  report.max_error = verdict.o.max_error;
  report.cosine_similarity = verdict.o.cosine;
  report.worst = element(verdict.o);
  report.max_lse_error = verdict.lse.max_error;
  report.worst_lse = element(verdict.lse);
  report.summary = to_string(verdict);
  return report;
}

void solve_on_cpu(const Problem& problem, HostTensors& host) {
  const Tensors tensors = tensors_of(problem, host);
  const Reference reference = reference_attention(problem, tensors);
  const auto head_dim_v = static_cast<std::size_t>(problem.head_dim_v);
  for (std::size_t i = 0; i < reference.rows.size(); ++i) {
    const QueryRow row = place_of(sequences_of(problem, tensors), reference.rows[i]);
    const std::int64_t o_row = row.batch * tensors.o.stride_batch +
                               row.head * tensors.o.stride_head + row.query * tensors.o.stride_row;
    for (std::size_t d = 0; d < head_dim_v; ++d) {
      store_element(problem.dtype_o, host.o.data(), o_row + static_cast<std::int64_t>(d),
                    static_cast<float>(reference.o[i * head_dim_v + d]));
    }
    if (problem.lse) {
      const std::int64_t at = row.batch * tensors.lse.stride_batch +
                              row.head * tensors.lse.stride_head + row.query;
      host.lse[static_cast<std::size_t>(at)] = static_cast<float>(reference.lse[i]);
    }
  }
}

}  // namespace attnforge
