#include "attnforge/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include "attnforge/error.h"
#include "generator/tensors/operands.h"
#include "generator/user_code/code_operands.h"
#include "plan/tools/text_functions.h"
#include "reference/attention.h"
#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "reference/gradients.h"
#include "reference/half.h"
#include "reference/parts/append.h"
#include "reference/sequences.h"
#include "reference/usable_cores.h"
#include "reference/visible.h"
#include "tuner/append_oracle.h"

namespace attnforge {
namespace {

/// Pointers into `host`, whose sizes are checked, and what its texts compute. The reference takes
/// Tensors, whose pointers are not const.
struct HostRun {
  std::vector<std::uint64_t> words;  // tensors.code_arguments
  Tensors tensors;
  CodeFunctions code;

  HostRun(const Problem& problem, const HostTensors& host) {
    validate(problem);
    const std::vector<Operand> list = operands(problem);
    check_sizes(problem, list, host);
    std::vector<void*> addresses;
    for (const Operand& operand : list)
      addresses.push_back(const_cast<std::byte*>(operand.content(host).data()));
    tensors = bound_tensors(problem, list, addresses, host, words);
    check_tables(problem, host);
    code = text_functions(problem, tensors);
  }
  HostRun(const HostRun&) = delete;
};

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

/// Rows of queries, or of keys, of one kind of heads.
struct Side {
  bool of_keys = false;
  std::int64_t heads = 0;

  std::int64_t length(const Problem& sequence) const {
    return of_keys ? sequence.seqlen_kv : sequence.seqlen_q;
  }
};
Side queries_of(const Problem& problem) { return {false, problem.num_heads_q}; }
Side keys_of(const Problem& problem) { return {true, problem.num_heads_kv}; }

/// Rows of all heads.
std::int64_t count_rows(const Sequences& sequences, const Side& side) {
  std::int64_t count = 0;
  for (std::int64_t batch = 0; batch < sequences.problem.batch; ++batch)
    count += side.length(problem_of_sequence(sequences, batch)) * side.heads;
  return count;
}

bool affords_all(const Sequences& sequences, const CheckOptions& options) {
  return options.max_work <= 0 || flops(sequences) / 2 <= options.max_work;
}

/// Rows within `max_work`, at least one, spread evenly over sequences and heads. A key stands in
/// the place of a query.
std::vector<QueryRow> sampled_rows(const Sequences& sequences, const Side& side,
                                   const CheckOptions& options) {
  const std::int64_t groups = sequences.problem.batch * side.heads;
  const double row_work = flops(sequences) / 2 / static_cast<double>(count_rows(sequences, side));
  const auto affordable = static_cast<std::int64_t>(std::max(1.0, options.max_work / row_work));
  const std::int64_t sampled_groups = std::min(groups, affordable);
  std::mt19937_64 random(options.seed);
  std::vector<QueryRow> rows;
  for (std::int64_t i = 0; i < sampled_groups; ++i) {
    const std::int64_t group = i * groups / sampled_groups, batch = group / side.heads;
    const std::int64_t length = side.length(problem_of_sequence(sequences, batch));
    if (length == 0) continue;
    for (const std::int64_t position :
         sample_positions(length, affordable / sampled_groups, random))
      rows.push_back({.batch = batch, .head = group % side.heads, .query = position});
  }
  return rows;
}

std::vector<QueryRow> rows_to_check(const Sequences& sequences, const CheckOptions& options) {
  if (affords_all(sequences, options)) return all_rows(sequences);
  return sampled_rows(sequences, queries_of(sequences.problem), options);
}

BackwardRows gradient_rows_to_check(const Sequences& sequences, CheckOptions options) {
  options.max_work /= 2;  // for either side
  if (affords_all(sequences, options)) return all_backward_rows(sequences);
  return {sampled_rows(sequences, queries_of(sequences.problem), options),
          sampled_rows(sequences, keys_of(sequences.problem), options)};
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

/// How near the worst element is to what is allowed, or how far beyond.
double badness(const Comparison& c) {
  return c.nonfinite_wrong > 0
             ? std::numeric_limits<double>::infinity()
             : std::abs(c.worst_actual - c.worst_expected) / std::max(c.worst_allowed, 1e-300);
}

/// Of several tensors, without rows.
CheckReport report_of(std::span<const Comparison> all) {
  CheckReport report;
  const Comparison* worst = &all[0];
  for (const Comparison& each : all) {
    report.ok &= each.passed();
    report.wrong += each.wrong;
    report.nonfinite_wrong += each.nonfinite_wrong;
    if (badness(each) > badness(*worst)) worst = &each;
  }
  report.tensor = worst->tensor;
  report.max_error = worst->max_error;
  report.cosine_similarity = worst->cosine;
  report.worst = element(*worst);
  return report;
}

CheckReport check_gradients(const Problem& problem, const HostRun& run,
                            const CheckOptions& options) {
  const Tensors& tensors = run.tensors;
  if (problem.accumulate) {
    throw Error(ErrorCode::kUnsupported,
                "gradients that were added to others cannot be checked: leave out the word "
                "accumulate");
  }
  const Sequences sequences = sequences_of(problem, tensors);
  const BackwardRows rows = gradient_rows_to_check(sequences, options);
  const std::vector<Darg> dargs = dargs_of(problem);
  CodeFunctions code = run.code;
  for (CodeFunctions::Darg& darg : code.dargs) darg.before = nullptr;  // the run began at zeros
  const ReferenceGradients expected = reference_gradients(problem, tensors, rows, code);
  GradientVerdict verdict = compare_gradients(problem, tensors, expected);
  for (std::size_t i = 0; i < dargs.size(); ++i) {
    const std::vector<float> found = floats_of(dargs[i], address_of(dargs[i], tensors));
    Comparison& darg = verdict.dargs.emplace_back(
        compare_darg(problem, found.data(), expected.dargs[i], dargs[i].dtype));
    darg.tensor = "d" + dargs[i].name;
  }
  std::vector<Comparison> all = {verdict.dq, verdict.dk, verdict.dv, verdict.dsinks};
  all.insert(all.end(), verdict.dargs.begin(), verdict.dargs.end());
  CheckReport report = report_of(all);
  report.rows_checked = static_cast<std::int64_t>(rows.queries.size() + rows.keys.size());
  report.rows_total = count_rows(sequences, queries_of(problem)) +
                      count_rows(sequences, keys_of(problem));
  report.summary = to_string(verdict);
  return report;
}

/// Rows of so many columns: row i to where at(i) says that it lies.
template <class At>
void store_rows(DType dtype, const Tensor& to, std::span<const double> values, int columns,
                const At& at) {
  for (std::size_t done = 0; done < values.size(); done += static_cast<std::size_t>(columns)) {
    const QueryRow row = at(done / static_cast<std::size_t>(columns));
    const std::int64_t begin = row.batch * to.stride_batch + row.head * to.stride_head +
                               row.query * to.stride_row;
    for (int d = 0; d < columns; ++d)
      store_element(dtype, to.data, begin + d,
                    static_cast<float>(values[done + static_cast<std::size_t>(d)]));
  }
}

void solve_gradients(const Problem& problem, const HostRun& run) {
  const Tensors& tensors = run.tensors;
  const Sequences sequences = sequences_of(problem, tensors);
  check_sequences(sequences);
  const ReferenceGradients found = reference_gradients(problem, tensors,
                                                       all_backward_rows(sequences), run.code);
  const auto query = [&](std::size_t i) { return place_of(sequences, found.rows.queries[i]); };
  const auto key = [&, by_keys = transposed(sequences)](std::size_t i) {
    return place_of(by_keys, found.rows.keys[i]);
  };
  const Gradients& to = tensors.gradients;
  const auto store = [](DType dtype, const Tensor& gradient, const ReferenceGradient& from,
                        const auto& at) {
    store_rows(dtype, gradient, from.values, from.columns, at);
  };
  store(gradient_dtype(problem, problem.dtype_q), to.dq, found.dq, query);
  store(gradient_dtype(problem, problem.dtype_k), to.dk, found.dk, key);
  store(gradient_dtype(problem, problem.dtype_v), to.dv, found.dv, key);
  const auto head = [](std::size_t i) {
    return QueryRow{.batch = 0, .head = static_cast<std::int64_t>(i), .query = 0};
  };
  store(DType::kFp32, {.data = to.dsinks, .stride_head = 1}, found.dsinks, head);
  const std::vector<Darg> dargs = dargs_of(problem);
  for (std::size_t i = 0; i < dargs.size(); ++i) {
    const std::vector<double>& values = found.dargs[i].values;
    const std::vector<float> floats(values.begin(), values.end());
    values_from_float(dargs[i].dtype, floats.data(), floats.size(), address_of(dargs[i], tensors));
  }
}

/// Of an append that began with caches of zeros.
CheckReport check_append(const Problem& problem, const HostTensors& host) {
  HostTensors expected = host;
  for (const Operand& operand : operands(problem)) {
    if (operand.role == Operand::Role::kOutput)
      std::ranges::fill(operand.in_host(expected), std::byte{0});
  }
  reference_append(problem, HostRun(problem, expected).tensors);
  const std::vector<Comparison> all = compare_append(problem, host, expected);
  CheckReport report = report_of(all);
  report.rows_checked = report.rows_total = total_tokens(problem).q;
  for (const Comparison& each : all)
    report.summary += (report.summary.empty() ? "" : "\n") + to_string(each);
  return report;
}

}  // namespace

CheckReport check_output(const Problem& problem, const HostTensors& host,
                         const CheckOptions& options) {
  const HostRun run(problem, host);
  if (is_backward(problem)) return check_gradients(problem, run, options);
  if (problem.op == Op::kAppend) return check_append(problem, host);
  const Tensors& tensors = run.tensors;
  CheckReport report;
  const Sequences sequences = sequences_of(problem, tensors);
  report.rows_total = count_rows(sequences, queries_of(problem));
  if (report.rows_total == 0) {
    report.summary = "nothing to check: o is empty";
    return report;
  }
  const std::vector<QueryRow> rows = rows_to_check(sequences, options);
  const Verdict verdict = compare(problem, tensors,
                                  reference_attention(problem, tensors, rows, run.code));
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
  const HostRun run(problem, host);
  if (is_backward(problem)) return solve_gradients(problem, run);
  if (problem.op == Op::kAppend) return reference_append(problem, run.tensors);
  const Tensors& tensors = run.tensors;
  const Sequences sequences = sequences_of(problem, tensors);
  check_sequences(sequences);
  const Reference reference = reference_attention(problem, tensors, all_rows(sequences), run.code);
  const auto at = [&](std::size_t i) { return place_of(sequences, reference.rows[i]); };
  store_rows(problem.dtype_o, tensors.o, reference.o, problem.head_dim_v, at);
  if (!problem.lse) return;
  const Rows& lse = tensors.lse;
  store_rows(DType::kFp32, {lse.data, lse.stride_batch, 1, lse.stride_head}, reference.lse, 1, at);
}

double solve_on_cpu_bytes(const Problem& p) {
  const Tokens tokens = total_tokens(p);
  const auto queries = static_cast<double>(p.num_heads_q * tokens.q);
  const auto keys = static_cast<double>(p.num_heads_kv * tokens.kv);
  const bool backward = is_backward(p);
  const double numbers = backward ? queries * p.head_dim + keys * (p.head_dim + p.head_dim_v)
                                  : queries * p.head_dim_v;
  constexpr double kOfRow = 96, kRows = 16;
  const double rows = backward ? queries + 2 * keys : queries;
  // One of these queries sees as many keys as any.
  std::int64_t seen = 0;
  for (const std::int64_t query : {std::int64_t{0}, p.seqlen_q / 2, p.seqlen_q - 1}) {
    const KeyRange range = visible_keys(p, query);
    seen = std::max(seen, range.last - range.first + 1);
  }
  const double threads = usable_cores();
  // Sequences of their own lengths are computed one by one, and put together.
  const double copies = all_full(p) ? 1 : 2;
  return copies * (numbers * sizeof(double) + rows * kOfRow) +
         threads * kRows * sizeof(double) * (static_cast<double>(seen) + kRows);
}

}  // namespace attnforge
