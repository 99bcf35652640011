#include "tuner/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "generator/tensors/operands.h"
#include "reference/compare/outputs.h"
#include "reference/score.h"
#include "tuner/append_oracle.h"
#include "tuner/forward_lse.h"
#include "tuner/oracle_list.h"
#include "tuner/oracle_rows.h"

namespace attnforge {
namespace {

/// The oracle writes fp32, so that only the candidate's rounding is in the difference.
Problem with_fp32_output(Problem problem) {
  problem.layout = Layout::kBshd;
  problem.dtype_o = DType::kFp32;
  // How large scores are may show in lse alone, and fp32's error grows with it.
  problem.lse |= !knows_score_sizes(problem);
  // No less than an element, or the problem is not valid.
  problem.alignment_bytes = std::max(problem.alignment_bytes,
                                     static_cast<int>(bytes_of(problem.dtype_o, 1)));
  return problem;
}

OracleKernel output_oracle(const Problem& problem, const DeviceFacts& device) {
  OracleKernel oracle = oracle_kernel("fwd_naive", with_fp32_output(problem), device);
  // That of the inputs may be less than an element of the output, which no valid Problem says.
  oracle.problem.alignment_bytes = problem.alignment_bytes;
  return oracle;
}

/// Every head's rows, head after head.
std::vector<QueryRow> rows_of_heads(const Problem& problem, const std::vector<ListedRow>& list) {
  std::vector<QueryRow> rows;
  rows.reserve(list.size() * static_cast<std::size_t>(problem.num_heads_q));
  for (std::int64_t head = 0; head < problem.num_heads_q; ++head) {
    for (const ListedRow& row : list) rows.push_back({row.batch, head, row.query});
  }
  return rows;
}

/// What a merge should give in these rows: of copies of its parts, which lie without gaps.
Reference merged_on_host(const Problem& problem, const Tensors& tensors,
                         std::span<const QueryRow> rows, CUstream stream) {
  const auto count = static_cast<std::size_t>(total_tokens(problem).q * problem.num_heads_q);
  const auto bytes = static_cast<std::size_t>(
      bytes_of(problem.dtype_q, static_cast<std::int64_t>(count) * problem.head_dim));
  const auto parts = static_cast<std::size_t>(problem.parts);
  std::vector<std::byte> o(parts * bytes);
  std::vector<float> lse(parts * count);
  std::vector<AttentionState> states(tensors.parts, tensors.parts + parts);
  const auto copied = [&](void*& data, void* to, std::size_t size) {
    check(driver().cuMemcpyDtoHAsync(to, reinterpret_cast<CUdeviceptr>(data), size, stream),
          "copy the parts of a merge");
    data = to;
  };
  for (std::size_t i = 0; i < parts; ++i) {
    copied(states[i].o.data, o.data() + i * bytes, bytes);
    void* of_part = states[i].lse.data;
    copied(of_part, lse.data() + i * count, count * sizeof(float));
    states[i].lse.data = static_cast<float*>(of_part);
  }
  wait_for_copies(stream);
  Tensors on_host = tensors;
  on_host.parts = states.data();
  return reference_attention(problem, on_host, rows);
}

/// Compares o and lse.
class OutputOracle : public Oracle {
 public:
  OutputOracle(const Sequences& sequences, const DeviceFacts& device, const Tensors& tensors,
               unsigned seed, const Instruments& instruments, const OwnCode& code, CUstream stream);
  Verdict compare(const Tensors& tensors, CUstream stream) override;

 private:
  void allocate_gathered();

  Problem problem_;
  const Instruments& instruments_;
  ListOnGpu list_;
  Buffer gathered_o_,
      gathered_lse_;    // [num_heads_q][num_rows][head_dim_v], [num_heads_q][num_rows]
  Reference expected_;  // its rows in the same order
};

OutputOracle::OutputOracle(const Sequences& sequences, const DeviceFacts& device,
                           const Tensors& tensors, unsigned seed, const Instruments& instruments,
                           const OwnCode& code, CUstream stream)
    : problem_(sequences.problem), instruments_(instruments) {
  const Problem& problem = problem_;
  const std::vector<RowRange> ranges = rows_to_compare(sequences, device, seed);
  if (ranges.empty()) return;
  if (!is_attention(problem)) {
    const std::vector<ListedRow> list = listed(ranges, 1);
    list_ = ListOnGpu(sequences, list);
    expected_ = merged_on_host(problem, tensors, rows_of_heads(problem, list), stream);
    allocate_gathered();
    return;
  }
  const OracleKernel oracle = output_oracle(problem, device);
  const Problem& fp32 = oracle.problem;
  const std::vector<ListedRow> list = listed(ranges, rows_per_block(oracle.config));
  list_ = ListOnGpu(sequences, list);
  const std::vector<QueryRow> rows = rows_of_heads(problem, list);
  const std::size_t elements = rows.size() * static_cast<std::size_t>(problem.head_dim_v);
  const Buffer o(elements * sizeof(float)), lse(fp32.lse ? rows.size() * sizeof(float) : 0);

  Tensors on_rows = tensors;
  on_rows.o = {.data = o.data(),
               .stride_row = problem.head_dim_v,
               .stride_head = std::int64_t{list_.num_rows} * problem.head_dim_v};
  on_rows.lse.data = static_cast<float*>(lse.data());
  on_rows.lse.stride_head = list_.num_rows;
  run_oracle(oracle, device, code, launch_rows(oracle.config, fp32, list_.listed(), list_.num_rows),
             on_rows, stream);

  const auto host_o = o.to_host<float>(), host_lse = lse.to_host<float>();
  expected_ = reference_from_outputs(sequences, rows, host_o, host_lse, kLargestNormal);
  allocate_gathered();
}

void OutputOracle::allocate_gathered() {
  gathered_o_ = Buffer(static_cast<std::size_t>(
      bytes_of(problem_.dtype_o, static_cast<std::int64_t>(expected_.o.size()))));
  gathered_lse_ = Buffer(problem_.lse ? expected_.rows.size() * sizeof(float) : 0);
}

Oracle::Verdict OutputOracle::compare(const Tensors& tensors, CUstream stream) {
  if (list_.num_rows == 0) return {};
  list_.gather(instruments_, tensors.o, problem_.dtype_o, problem_.num_heads_q, problem_.head_dim_v,
               gathered_o_, stream);
  if (problem_.lse) {
    const Tensor lse{.data = tensors.lse.data,
                     .stride_batch = tensors.lse.stride_batch,
                     .stride_row = 1,
                     .stride_head = tensors.lse.stride_head};
    list_.gather(instruments_, lse, DType::kFp32, problem_.num_heads_q, 1, gathered_lse_, stream);
  }
  wait_for_copies(stream);

  const auto host_o = gathered_o_.to_host<std::byte>();
  const auto host_lse = gathered_lse_.to_host<float>();
  const auto compared = compare_rows(problem_, host_o.data(), host_lse.data(), expected_);
  Verdict verdict;
  verdict.max_error = compared.o.max_error;
  if (!compared.passed())
    verdict.mismatch = fmt::format("wrong in query rows: {}", to_string(compared));
  return verdict;
}

}  // namespace

std::unique_ptr<Oracle> make_oracle(const Sequences& sequences, const DeviceFacts& device,
                                    const Tensors& tensors, unsigned seed,
                                    const Instruments& instruments, const OwnCode& code,
                                    CUstream stream) {
  if (sequences.problem.op == Op::kAppend)
    return make_append_oracle(sequences.problem, tensors, stream);
  if (!writes(sequences.problem, "o"))
    return make_gradient_oracle(sequences, device, tensors, seed, instruments, code, stream);
  return std::make_unique<OutputOracle>(sequences, device, tensors, seed, instruments, code,
                                        stream);
}

std::vector<Source> oracle_sources(const Problem& problem, const DeviceFacts& device) {
  if (!is_attention(problem)) return {};
  if (writes(problem, "o")) return {output_oracle(problem, device).source()};
  std::vector<Source> sources = {gradient_source(problem, device)};
  if (const auto oracle = lse_oracle(problem, device)) sources.push_back(oracle->source());
  return sources;
}

}  // namespace attnforge
