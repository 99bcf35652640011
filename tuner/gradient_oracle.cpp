// gradient_oracle.cpp - the oracle of backward problems: bwd_naive on rows of dq, and of dk and dv.
#include "tuner/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "generator/user_code/code_operands.h"
#include "generator/user_code/user_code.h"
#include "reference/compare/comparer.h"
#include "reference/half.h"
#include "reference/score.h"
#include "templates/oracle/bwd_naive/oracle.h"
#include "tuner/oracle_list.h"
#include "tuner/oracle_rows.h"

namespace attnforge {
namespace {

/// The oracle writes fp32, so that only the candidate's rounding is in the difference.
Problem with_fp32_gradients(Problem problem) {
  if (writes_dargs(problem)) problem.dargs = dargs_of(problem).front().name;
  problem.layout = Layout::kBshd;
  problem.fp32_gradients = true;
  problem.accumulate = problem.deterministic = false;
  problem.alignment_bytes = std::max(problem.alignment_bytes,
                                     static_cast<int>(bytes_of(DType::kFp32, 1)));
  return problem;
}

OracleKernel gradient_oracle(const Problem& problem, const DeviceFacts& device) {
  OracleKernel oracle = oracle_kernel("bwd_naive", with_fp32_gradients(problem), device);
  oracle.problem.alignment_bytes = problem.alignment_bytes;  // of the inputs
  return oracle;
}

/// How far an element may be off: `of_norm` times its row's norm, and shares of what a run computes
/// and of what it stores.
struct RowTolerance {
  double of_norm = 0, of_sum = 0, of_stored = 0, always = 0;
};

/// The tolerance of sums over `terms` products of a p or ds, whose roundings to `factor` are
/// independent of each other, and a standard normal number. `scale`: what the sum is multiplied by.
RowTolerance tolerance_of(const Problem& problem, DType factor, DType stored, double terms,
                          double scale) {
  // TF32 rounds both factors (reference/compare/tolerance.cpp).
  constexpr double kTf32Roundoff = 0x1.8p-11;
  const double roundoff = problem.tf32 ? 2 * kTf32Roundoff : unit_roundoff(factor);
  // The relative error of p, and of dp - delta with it, in fp32: sums of head_dim products.
  const double dims = std::max(problem.head_dim, problem.head_dim_v);
  double of_scores = 0x1p-23 * std::max(4.0, dims / 16) * (2 + std::sqrt(dims));
  if (changes_scores(problem)) of_scores += 0x1p-19;  // tanh, and 1 - tanh^2
  if (problem.tf32) of_scores += 8 * kTf32Roundoff;
  const double of_sum = 1e-7 * (8 + std::sqrt(terms));  // a random walk of partial sums
  // Six times the root mean square is as good as never exceeded, and no normal number is larger.
  constexpr double kSigmas = 6;
  RowTolerance tolerance;
  tolerance.of_norm = kSigmas * scale * (roundoff + of_scores + of_sum);
  // Equal numbers are rounded alike.
  tolerance.of_sum = 2 * roundoff;
  tolerance.of_stored = unit_roundoff(stored);
  // Below its smallest normal number fp16 has an absolute step.
  tolerance.always += kSigmas * scale * format_of(factor).step * std::sqrt(terms) +
                      format_of(stored).step;
  return tolerance;
}

/// One of dq, dk and dv in the rows of a list.
struct Compared {
  std::string_view name;
  Tensor Gradients::*tensor;
  const ListOnGpu* list;
  DType dtype;
  std::int64_t heads;
  int columns;
  RowTolerance tolerance;
  std::vector<float> sums{};    // [heads][rows][columns]
  std::vector<float> norms{};   // [heads][rows]
  std::vector<float> before{};  // of outputs that are added to, else empty
  Buffer gathered{};

  std::size_t elements() const {
    return static_cast<std::size_t>(heads * list->num_rows) * static_cast<std::size_t>(columns);
  }
};

/// A gradient whose elements are sums over all rows.
struct ComparedArray {
  std::string name;
  std::function<float*(const Tensors&)> address;
  double tolerance;  // of an element's size
  std::vector<float> sums{}, sizes{};
  std::vector<float> before{};  // what is added to; of one that is written: what stays elsewhere
  bool written = false;
  DType dtype = DType::kFp32;

  std::vector<float> of(const Tensors& tensors, CUstream stream) const {
    wait_for_copies(stream);
    const auto count = static_cast<std::int64_t>(sums.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(bytes_of(dtype, count)));
    check(driver().cuMemcpyDtoH(bytes.data(), reinterpret_cast<CUdeviceptr>(address(tensors)),
                                bytes.size()),
          "copy {}", name);
    std::vector<float> values(sums.size());
    format_of(dtype).load(bytes.data(), 0, count, values.data());
    return values;
  }
};

class GradientOracle : public Oracle {
 public:
  GradientOracle(const Sequences& sequences, const DeviceFacts& device, const Tensors& tensors,
                 unsigned seed, const Instruments& instruments, const OwnCode& code,
                 CUstream stream);
  Verdict compare(const Tensors& tensors, CUstream stream) override;

 private:
  std::vector<float> gathered(Compared& of, const Tensors& tensors, CUstream stream);
  void compare_arrays(const Tensors& tensors, CUstream stream, Verdict& verdict) const;

  const Instruments& instruments_;
  std::vector<ListedRow> query_rows_, key_rows_;
  ListOnGpu queries_, keys_;
  std::array<Compared, 3> compared_;
  std::vector<ComparedArray> arrays_;  // of the sinks and of problem.dargs
};

/// Probabilities are not rounded to 16 bits; P, dP and delta are of sums of products.
double darg_tolerance_of(const Problem& p) {
  const double pairs = static_cast<double>(total_tokens(p).q * p.num_heads_q) *
                       static_cast<double>(p.seqlen_kv);
  const double dims = std::max(p.head_dim, p.head_dim_v);
  return 1e-7 * (8 + std::sqrt(pairs)) + 0x1p-19 +
         0x1p-22 * std::max(4.0, dims / 16) * (2 + std::sqrt(dims));
}

/// Both sides add up products and rows in fp32, each in its own order.
double dsink_tolerance_of(const Problem& p) {
  const double rows = static_cast<double>(total_tokens(p).q);
  return 1e-7 * (8 + std::sqrt(rows)) + 1e-6 * std::sqrt(double(p.head_dim_v));
}

/// `pairs`: of each element the gradient, and the sum of the sizes that it is made of.
ComparedArray array_of(const Problem& p, const Darg& darg, const std::vector<float>& pairs) {
  ComparedArray array{"the gradient of " + darg.name,
                      [darg](const Tensors& t) { return address_of(darg, t); },
                      darg_tolerance_of(p)};
  array.written = darg.written, array.dtype = darg.dtype;
  for (std::size_t at = 0; at < pairs.size(); at += 2) {
    array.sums.push_back(pairs[at]);
    array.sizes.push_back(pairs[at + 1]);
  }
  return array;
}

GradientOracle::GradientOracle(const Sequences& sequences, const DeviceFacts& device,
                               const Tensors& tensors, unsigned seed,
                               const Instruments& instruments, const OwnCode& code, CUstream stream)
    : instruments_(instruments) {
  const Problem& p = sequences.problem;
  const Sequences by_keys = transposed(sequences);
  query_rows_ = listed(rows_to_compare(sequences, device, seed), kGradientRowsPerBlock);
  key_rows_ = listed(rows_to_compare(by_keys, device, seed + 1), kGradientRowsPerBlock);
  queries_ = ListOnGpu(sequences, query_rows_);
  keys_ = ListOnGpu(by_keys, key_rows_);

  const double scale = effective_softmax_scale(p);
  const auto keys = static_cast<double>(p.seqlen_kv);
  const double queries = static_cast<double>(p.seqlen_q) *
                         static_cast<double>(p.num_heads_q / p.num_heads_kv);
  const auto of = [&](std::string_view name, Tensor Gradients::*tensor, const ListOnGpu& list,
                      DType input, std::int64_t heads, int columns, DType factor, double terms,
                      double by) {
    const DType stored = gradient_dtype(p, input);
    return Compared{.name = name,
                    .tensor = tensor,
                    .list = &list,
                    .dtype = stored,
                    .heads = heads,
                    .columns = columns,
                    .tolerance = tolerance_of(p, factor, stored, terms, by)};
  };
  compared_[0] = of("dq", &Gradients::dq, queries_, p.dtype_q, p.num_heads_q, p.head_dim, p.dtype_k,
                    keys, scale);
  compared_[1] = of("dk", &Gradients::dk, keys_, p.dtype_k, p.num_heads_kv, p.head_dim, p.dtype_q,
                    queries, scale);
  compared_[2] = of("dv", &Gradients::dv, keys_, p.dtype_v, p.num_heads_kv, p.head_dim_v, p.dtype_o,
                    queries, 1);
  if (queries_.num_rows + keys_.num_rows == 0) return;

  const OracleKernel oracle = gradient_oracle(p, device);
  std::array<Buffer, 3> sums, norms;
  Tensors on_rows = tensors;
  for (std::size_t i = 0; i < compared_.size(); ++i) {
    const Compared& each = compared_[i];
    sums[i] = Buffer(each.elements() * sizeof(float));
    norms[i] = Buffer(static_cast<std::size_t>(each.heads * each.list->num_rows) * sizeof(float));
    on_rows.gradients.*
        each.tensor = {.data = sums[i].data(),
                       .stride_row = each.columns,
                       .stride_head = std::int64_t{each.list->num_rows} * each.columns};
  }
  const auto sink_heads = static_cast<std::size_t>(p.sinks ? p.num_heads_q : 0);
  const Buffer dsinks(sink_heads * sizeof(float)), dsink_norms(sink_heads * sizeof(float));
  on_rows.gradients.dsinks = static_cast<float*>(dsinks.data());
  const std::vector<Darg> dargs = dargs_of(p);
  std::vector<Buffer> darg_sums;
  std::vector<float*> darg_addresses;
  for (const Darg& darg : dargs) {
    darg_sums.emplace_back(static_cast<std::size_t>(darg.elements) * 2 * sizeof(float))
        .fill8(0, stream);
    darg_addresses.push_back(static_cast<float*>(darg_sums.back().data()));
  }
  std::vector<std::uint64_t> words;
  on_rows = with_dargs_at(on_rows, dargs, darg_addresses, words);
  const Launch launch = launch_gradients(oracle.config, oracle.problem,
                                         {.queries = queries_.listed(),
                                          .keys = keys_.listed(),
                                          .num_queries = queries_.num_rows,
                                          .num_keys = keys_.num_rows,
                                          .dq_norms = static_cast<float*>(norms[0].data()),
                                          .dk_norms = static_cast<float*>(norms[1].data()),
                                          .dv_norms = static_cast<float*>(norms[2].data()),
                                          .dsink_norms = static_cast<float*>(dsink_norms.data())});
  run_oracle(oracle, device, code, launch, on_rows, stream);
  for (std::size_t i = 0; i < compared_.size(); ++i) {
    Compared& each = compared_[i];
    each.sums = sums[i].to_host<float>();
    each.norms = norms[i].to_host<float>();
    each.gathered = Buffer(static_cast<std::size_t>(bytes_of(each.dtype, each.elements())));
    if (p.accumulate) each.before = gathered(each, tensors, stream);
  }
  if (p.sinks)
    arrays_.push_back({"dsinks", [](const Tensors& t) { return t.gradients.dsinks; },
                       dsink_tolerance_of(p), dsinks.to_host<float>(),
                       dsink_norms.to_host<float>()});
  for (std::size_t i = 0; i < dargs.size(); ++i)
    arrays_.push_back(array_of(p, dargs[i], darg_sums[i].to_host<float>()));
  for (ComparedArray& array : arrays_) {
    const bool is_added_to = p.accumulate || array.name != "dsinks";
    array.before = is_added_to ? array.of(tensors, stream)
                               : std::vector<float>(array.sums.size(), 0.0f);
  }
}

/// What was found of one tensor.
void add_to(Oracle::Verdict& verdict, std::string_view where, const Comparison& found) {
  verdict.max_error = std::max(verdict.max_error, found.max_error);
  if (found.passed()) return;
  verdict.mismatch += fmt::format("{}wrong in {}{}", verdict.mismatch.empty() ? "" : "; ", where,
                                  to_string(found));
}

void GradientOracle::compare_arrays(const Tensors& tensors, CUstream stream,
                                    Verdict& verdict) const {
  for (const ComparedArray& array : arrays_) {
    const std::vector<float> actual = array.of(tensors, stream);
    Comparer comparer(array.name, DType::kFp32);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      if (array.written && array.sizes[i] == 0 && actual[i] == array.before[i]) continue;
      const double before = array.written ? 0 : array.before[i];
      const double expected = double{array.sums[i]} + before;
      const double rounding = (array.dtype == DType::kFp32 ? 1e-6 : 0x1p-8) * std::abs(expected) +
                              (array.dtype == DType::kFp16 ? 0x1p-24 : 0);
      comparer.add(QueryRow{}, static_cast<int>(i), actual[i], expected,
                   array.tolerance * (array.sizes[i] + std::abs(before)) + rounding);
    }
    add_to(verdict, "", comparer.take());
  }
}

std::vector<float> GradientOracle::gathered(Compared& of, const Tensors& tensors, CUstream stream) {
  of.list->gather(instruments_, tensors.gradients.*of.tensor, of.dtype, of.heads, of.columns,
                  of.gathered, stream);
  wait_for_copies(stream);
  const auto bytes = of.gathered.to_host<std::byte>();
  std::vector<float> values(of.elements());
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(
        load_element(of.dtype, bytes.data(), static_cast<std::int64_t>(i)));
  return values;
}

Oracle::Verdict GradientOracle::compare(const Tensors& tensors, CUstream stream) {
  Verdict verdict;
  for (Compared& each : compared_) {
    if (each.elements() == 0) continue;
    const std::vector<float> actual = gathered(each, tensors, stream);
    const bool of_keys = each.list == &keys_;
    const std::vector<ListedRow>& rows = of_keys ? key_rows_ : query_rows_;
    const auto columns = static_cast<std::size_t>(each.columns);
    Comparer comparer(std::string(each.name), each.dtype);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      const std::size_t row = i / columns;  // of all heads
      const ListedRow& listed = rows[row % rows.size()];
      const double expected = double{each.sums[i]} + (each.before.empty() ? 0.0 : each.before[i]);
      comparer.add({listed.batch, static_cast<std::int64_t>(row / rows.size()), listed.query},
                   static_cast<int>(i % columns), actual[i], expected,
                   each.tolerance.of_norm * each.norms[row] +
                       each.tolerance.of_sum * std::abs(each.sums[i]) +
                       each.tolerance.of_stored * std::abs(expected) + each.tolerance.always);
    }
    Comparison found = comparer.take();
    found.of_keys = of_keys;
    add_to(verdict, "rows of ", found);
  }
  compare_arrays(tensors, stream, verdict);
  return verdict;
}

}  // namespace

std::unique_ptr<Oracle> make_gradient_oracle(const Sequences& sequences, const DeviceFacts& device,
                                             const Tensors& tensors, unsigned seed,
                                             const Instruments& instruments, const OwnCode& code,
                                             CUstream stream) {
  return std::make_unique<GradientOracle>(sequences, device, tensors, seed, instruments, code,
                                          stream);
}

Source gradient_source(const Problem& problem, const DeviceFacts& device) {
  return gradient_oracle(problem, device).source();
}

}  // namespace attnforge
