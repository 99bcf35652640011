#include "tuner/oracle.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "reference/compare.h"
#include "runtime/compiler.h"
#include "runtime/loaded_launch.h"
#include "templates/registry.h"
#include "tuner/timer.h"

namespace attnforge {
namespace {

Problem with_fp32_output(Problem problem) {
  problem.dtype_o = DType::kFp32;
  // No less than an element, or the problem is not valid.
  problem.alignment_bytes = std::max(problem.alignment_bytes, size_bytes(problem.dtype_o));
  return problem;
}

constexpr double
    kLongestSeconds = 60;  // it takes a fraction of one; this is for a GPU that others keep busy

/// Contiguous [batch, heads, rows, head_dim_v] at `o`, [batch, heads, rows] at `lse`.
void place_outputs(Tensors& tensors, const Problem& patch, void* o, float* lse) {
  const std::int64_t rows = patch.seqlen_q, heads = patch.num_heads_q, width = patch.head_dim_v;
  tensors.o = {.data = o,
               .stride_batch = heads * rows * width,
               .stride_row = width,
               .stride_head = rows * width};
  tensors.lse = patch.lse ? lse : nullptr;
  tensors.lse_stride_batch = heads * rows;
  tensors.lse_stride_head = rows;
}

std::size_t rows_of(const Problem& patch) {
  return static_cast<std::size_t>(patch.batch * patch.num_heads_q * patch.seqlen_q);
}

/// Runs fwd_naive on patches; kernels are compiled once for all patches that can share one.
class NaiveRunner {
 public:
  NaiveRunner(const DeviceFacts& device, CUstream stream) : device_(device), stream_(stream) {
    ATTNFORGE_ASSERT(family_ != nullptr, "the registry lists fwd_naive: it is the oracle");
  }

  /// `inputs_alignment_bytes` may be less than an element of the output, which a Problem cannot
  /// say.
  void run(const Problem& problem, const Tensors& tensors, int inputs_alignment_bytes) {
    const std::vector<Candidate> configs = candidates(*family_, problem, device_);
    ATTNFORGE_ASSERT(!configs.empty(), "fwd_naive serves every problem: it is the oracle");
    Config config = configs.front().config;
    for (auto& [name, value] : config.fields) {
      if (name == "alignment") value = inputs_alignment_bytes;
    }
    const Launch launch = family_->launch(config, problem, device_);
    ATTNFORGE_ASSERT(launch.workspace_bytes == 0 && counted_steps(launch) == 0,
                     "fwd_naive needs no memory beside its tensors");
    LoadedLaunch(launch, kernels(config, problem, launch)).run(tensors, {}, stream_);
  }

 private:
  const LoadedKernels& kernels(const Config& config, const Problem& problem, const Launch& launch) {
    LoadedKernels& loaded = kernels_[to_string(config)];
    if (loaded.empty()) {
      const Source source = family_->render(config, problem);
      loaded = LoadedKernels(compile(source, device_.arch).bytes, source, launch);
    }
    return loaded;
  }

  const Family* family_ = find_family("fwd_naive");
  const DeviceFacts& device_;
  CUstream stream_;
  std::map<std::string, LoadedKernels> kernels_;
};

}  // namespace

Oracle::Oracle(const Problem& problem, const DeviceFacts& device, const Tensors& tensors,
               unsigned seed, const Instruments& instruments, CUstream stream)
    : problem_(problem), instruments_(instruments) {
  std::vector<PatchProblem> smalls;
  for (const Patch& patch : patches(problem, device, seed)) {
    Expected expected;
    expected.patch = patch;
    smalls.push_back(patch_problem(problem, patch));
    expected.problem = smalls.back().problem;
    expected.o_begin = o_elements_;
    expected.lse_begin = lse_elements_;
    o_elements_ += rows_of(expected.problem) * static_cast<std::size_t>(problem.head_dim_v);
    lse_elements_ += problem.lse ? rows_of(expected.problem) : 0;
    expected_.push_back(std::move(expected));
  }

  // The oracle writes fp32, so that only the candidate's rounding is in the difference.
  const Buffer o(o_elements_ * sizeof(float)), lse(lse_elements_ * sizeof(float));
  NaiveRunner naive(device, stream);
  for (std::size_t i = 0; i < expected_.size(); ++i) {
    const Problem fp32 = with_fp32_output(expected_[i].problem);
    Tensors small = patch_tensors(problem, tensors, expected_[i].patch, smalls[i]);
    place_outputs(small, fp32, static_cast<float*>(o.data()) + expected_[i].o_begin,
                  static_cast<float*>(lse.data()) + expected_[i].lse_begin);
    naive.run(fp32, small, problem.alignment_bytes);
  }
  Event done;
  done.record(stream);
  if (!wait(done, kLongestSeconds)) {
    throw Error(
        ErrorCode::kCuda,
        fmt::format(
            "the oracle of \"{}\" did not finish in {} s: something else keeps the GPU busy",
            to_string(problem), kLongestSeconds));
  }

  std::vector<float> host_o = o.to_host<float>(), host_lse = lse.to_host<float>();
  for (Expected& expected : expected_) {
    const Problem fp32 = with_fp32_output(expected.problem);
    Tensors outputs;
    place_outputs(outputs, fp32, host_o.data() + expected.o_begin,
                  host_lse.data() + expected.lse_begin);
    expected.reference = reference_from_outputs(fp32, outputs, all_rows(fp32), kLargestNormal);
  }
  gathered_o_ = Buffer(o_elements_ * static_cast<std::size_t>(size_bytes(problem.dtype_o)));
  gathered_lse_ = Buffer(lse_elements_ * sizeof(float));
}

Oracle::Verdict Oracle::compare(const Tensors& tensors, CUstream stream) {
  const int o_words = size_bytes(problem_.dtype_o) / 2;  // 16-bit words an element
  constexpr int kLseWords = sizeof(float) / 2;
  const auto gather = [&](const Expected& expected, const void* from, void* to,
                          std::int64_t stride_batch, std::int64_t stride_row,
                          std::int64_t stride_head, int width) {
    const Patch& patch = expected.patch;
    const auto* words = static_cast<const std::uint16_t*>(from);
    instruments_.gather(
        {.from = words + patch.batch_begin * stride_batch + patch.row_begin * stride_row,
         .to = to,
         .stride_batch = stride_batch,
         .stride_row = stride_row,
         .stride_head = stride_head,
         .batches = static_cast<int>(expected.problem.batch),
         .heads = static_cast<int>(expected.problem.num_heads_q),
         .rows = static_cast<int>(expected.problem.seqlen_q),
         .width = width},
        stream);
  };
  for (const Expected& expected : expected_) {
    gather(expected, tensors.o.data,
           static_cast<std::uint16_t*>(gathered_o_.data()) + expected.o_begin * o_words,
           tensors.o.stride_batch * o_words, tensors.o.stride_row * o_words,
           tensors.o.stride_head * o_words, problem_.head_dim_v * o_words);
    if (!problem_.lse) continue;
    gather(expected, tensors.lse, static_cast<float*>(gathered_lse_.data()) + expected.lse_begin,
           tensors.lse_stride_batch * kLseWords, kLseWords, tensors.lse_stride_head * kLseWords,
           kLseWords);
  }
  Event done;
  done.record(stream);
  if (!wait(done, kLongestSeconds)) {
    throw Error(ErrorCode::kCuda,
                "copying a candidate's output did not finish: something else keeps the GPU busy");
  }

  std::vector<std::byte> host_o = gathered_o_.to_host<std::byte>();
  std::vector<float> host_lse = gathered_lse_.to_host<float>();
  Verdict verdict;
  for (const Expected& expected : expected_) {
    Tensors outputs;
    place_outputs(outputs, expected.problem, host_o.data() + expected.o_begin * o_words * 2,
                  host_lse.data() + expected.lse_begin);
    const auto compared = attnforge::compare(expected.problem, outputs, expected.reference);
    verdict.max_error = std::max(verdict.max_error, compared.o.max_error);
    if (compared.passed() || !verdict.mismatch.empty()) continue;
    const Patch& patch = expected.patch;
    verdict.mismatch = fmt::format(
        "wrong in query rows {} to {} of sequences {} to {}, counted from there: {}",
        patch.row_begin, patch.row_end - 1, patch.batch_begin, patch.batch_end - 1,
        to_string(compared));
  }
  return verdict;
}

}  // namespace attnforge
