#include "tuner/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "reference/compare.h"
#include "runtime/compiler.h"
#include "runtime/loaded_launch.h"
#include "templates/fwd_naive/oracle.h"
#include "templates/registry.h"
#include "tuner/oracle_rows.h"
#include "tuner/timer.h"

namespace attnforge {
namespace {

constexpr double
    kLongestSeconds = 60;  // it takes a fraction of one; this is for a GPU that others keep busy

/// The oracle writes fp32, so that only the candidate's rounding is in the difference.
Problem with_fp32_output(Problem problem) {
  problem.layout = Layout::kBshd;
  problem.dtype_o = DType::kFp32;
  // How large scores are that code has changed shows in lse alone, and fp32's error grows with it.
  problem.lse |= !problem.score.empty();
  // No less than an element, or the problem is not valid.
  problem.alignment_bytes = std::max(problem.alignment_bytes, size_bytes(problem.dtype_o));
  return problem;
}

Config oracle_config(const Family& family, const Problem& problem, const DeviceFacts& device) {
  const std::vector<Candidate> configs = candidates(family, problem, device);
  ATTNFORGE_ASSERT(!configs.empty(), "fwd_naive serves every problem: it is the oracle");
  return configs.front().config;
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

/// Where the rows of a list lie in o and lse.
std::vector<ListedRow> placed(const Sequences& sequences, std::vector<ListedRow> list) {
  for (ListedRow& row : list) {
    const QueryRow place = place_of(sequences, {row.batch, 0, row.query});
    row = {static_cast<int>(place.batch), static_cast<int>(place.query)};
  }
  return list;
}

/// For what was enqueued so far. A copy from the host is on the default stream.
void wait_for(CUstream stream, const std::string& trouble) {
  Event done;
  done.record(stream);
  if (!wait(done, kLongestSeconds)) throw Error(ErrorCode::kCuda, trouble);
}

}  // namespace

Oracle::Oracle(const Sequences& sequences, const DeviceFacts& device, const Tensors& tensors,
               unsigned seed, const Instruments& instruments, CUstream stream)
    : problem_(sequences.problem), instruments_(instruments) {
  const Problem& problem = problem_;
  const std::vector<RowRange> ranges = rows_to_compare(sequences, device, seed);
  if (ranges.empty()) return;
  Problem fp32 = with_fp32_output(problem);
  const Family* const family = find_family("fwd_naive");
  ATTNFORGE_ASSERT(family != nullptr, "the registry lists fwd_naive: it is the oracle");
  const Config config = oracle_config(*family, fp32, device);
  // That of the inputs may be less than an element of the output, which no valid Problem says.
  fp32.alignment_bytes = problem.alignment_bytes;

  const std::vector<ListedRow> list = listed(ranges, rows_per_block(config));
  num_rows_ = static_cast<int>(list.size());
  list_ = Buffer(list.size() * sizeof(ListedRow));
  list_.copy_from_host(list.data(), list_.size_bytes());
  const std::vector<ListedRow> places = placed(sequences, list);
  places_ = Buffer(list_.size_bytes());
  places_.copy_from_host(places.data(), places_.size_bytes());
  wait_for(nullptr, "copying the oracle's rows did not finish: something else keeps the GPU busy");
  const std::vector<QueryRow> rows = rows_of_heads(problem, list);
  const std::size_t elements = rows.size() * static_cast<std::size_t>(problem.head_dim_v);
  const Buffer o(elements * sizeof(float)), lse(fp32.lse ? rows.size() * sizeof(float) : 0);

  Tensors on_rows = tensors;
  on_rows.o = {.data = o.data(),
               .stride_row = problem.head_dim_v,
               .stride_head = std::int64_t{num_rows_} * problem.head_dim_v};
  on_rows.lse.data = static_cast<float*>(lse.data());
  on_rows.lse.stride_head = num_rows_;
  const Launch launch = launch_rows(config, fp32, static_cast<const ListedRow*>(list_.data()),
                                    num_rows_);
  const Source source = family->render(config, fp32);
  const LoadedKernels kernels(compile(source, device.arch).bytes, source, launch);
  LoadedLaunch(launch, kernels).run(on_rows, {}, stream);
  wait_for(stream, fmt::format("the oracle of \"{}\" did not finish in {} s: something else keeps "
                               "the GPU busy",
                               to_string(problem), kLongestSeconds));

  const auto host_o = o.to_host<float>(), host_lse = lse.to_host<float>();
  expected_ = reference_from_outputs(sequences, rows, host_o, host_lse, kLargestNormal);
  gathered_o_ = Buffer(elements * static_cast<std::size_t>(size_bytes(problem.dtype_o)));
  gathered_lse_ = Buffer(problem.lse ? lse.size_bytes() : 0);
}

Oracle::Verdict Oracle::compare(const Tensors& tensors, CUstream stream) {
  if (num_rows_ == 0) return {};
  const auto gather = [&](const void* from, const Buffer& to, const Tensor& strides, int width,
                          int element_bytes) {
    const int words = element_bytes / 2;
    instruments_.gather({.from = from,
                         .to = to.data(),
                         .rows = static_cast<const int*>(places_.data()),
                         .stride_batch = strides.stride_batch * words,
                         .stride_row = strides.stride_row * words,
                         .stride_head = strides.stride_head * words,
                         .heads = static_cast<int>(problem_.num_heads_q),
                         .num_rows = num_rows_,
                         .width = width * words},
                        stream);
  };
  gather(tensors.o.data, gathered_o_, tensors.o, problem_.head_dim_v, size_bytes(problem_.dtype_o));
  if (problem_.lse) {
    gather(tensors.lse.data, gathered_lse_,
           {.stride_batch = tensors.lse.stride_batch,
            .stride_row = 1,
            .stride_head = tensors.lse.stride_head},
           1, sizeof(float));
  }
  wait_for(stream,
           "copying a candidate's output did not finish: something else keeps the GPU busy");

  const auto host_o = gathered_o_.to_host<std::byte>();
  const auto host_lse = gathered_lse_.to_host<float>();
  const auto compared = compare_rows(problem_, host_o.data(), host_lse.data(), expected_);
  Verdict verdict;
  verdict.max_error = compared.o.max_error;
  if (!compared.passed())
    verdict.mismatch = fmt::format("wrong in query rows: {}", to_string(compared));
  return verdict;
}

}  // namespace attnforge
