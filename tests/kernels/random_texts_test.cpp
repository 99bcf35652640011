// random_texts_test.cpp - whole launches of texts that nobody chose, on the host: the generated
// entries (write_text_runs.cpp) with all their steps, beside the oracle on what the texts' trees
// mean. text_run(family, seed) of tests/kernels/text_runs.h draws a failure again.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "attnforge/error.h"
#include "generator/tensors/stored_rows.h"
#include "reference/compare/gradients.h"
#include "reference/compare/outputs.h"
#include "reference/gradients.h"
#include "reference/sequences.h"
#include "runtime/bind_arguments.h"
#include "tests/kernels/machine.h"
#include "tests/kernels/text_runs.h"
#include "tests/support/host_problem.h"

namespace attnforge {
namespace {

using namespace test;

/// bind_arguments(), with maps as the machine has them.
void bind_on_host(LaunchStep& step, const Tensors& tensors, const RunMemory& memory) {
  for (const ArgumentField& field : step.args) {
    std::byte* const at = step.params.data() + field.offset;
    const auto* const spec = std::get_if<TensorMapSpec>(&field.value);
    if (spec == nullptr) {
      bind_arguments({&field, 1}, step.from_workspace, tensors, memory, step.params);
      continue;
    }
    TensorMapSizes sizes;
    std::memcpy(&sizes, at, sizeof(sizes));
    sizes = sizes_of_run(*spec, sizes, tensors);
    Tensors seen = tensors;
    const Tensor& tensor = spec->operand.in(seen);
    const HostMap map{.data = tensor.data,
                      .stride_row = tensor.stride_row,
                      .stride_head = tensor.stride_head,
                      .stride_batch = tensor.stride_batch,
                      .columns = spec->columns,
                      .rows = static_cast<int>(sizes.rows),
                      .heads = static_cast<int>(sizes.heads),
                      .box_rows = spec->box_rows,
                      .packed_heads = std::max(1, spec->packed_heads),
                      .box_heads = std::max(1, spec->box_heads)};
    ASSERT_TRUE(step.from_workspace.empty() && spec->swizzle_bytes == 128);
    std::memcpy(at, &map, sizeof(map));
  }
}

/// What is wrong with outputs or gradients, or "".
std::string fault_of(HostProblem& host, const CodeFunctions& code,
                     const std::vector<std::vector<float>>& gradients) {
  const Problem& p = host.problem;
  const Tensors tensors = host.tensors();
  const Sequences sequences = sequences_of(p, tensors);
  std::string fault = host.trespass();
  if (!is_backward(p)) {
    const Reference wanted = reference_attention(p, tensors, all_rows(sequences), code, 1);
    const Verdict verdict = compare(p, tensors, wanted);
    return verdict.passed() ? fault : fault + to_string(verdict);
  }
  const auto wanted = reference_gradients(p, tensors, all_backward_rows(sequences), code, 1);
  const GradientVerdict verdict = compare_gradients(p, tensors, wanted);
  if (!verdict.passed()) fault += to_string(verdict);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    const Comparison compared = compare_darg(p, gradients[i].data(), wanted.dargs[i]);
    if (!compared.passed()) fault += "\n" + to_string(compared);
  }
  return fault;
}

void expect_right(const TextLaunch& text) {
  const TextRun run = text_run(text.family, text.seed);
  const Problem& p = run.problem;
  SCOPED_TRACE(to_string(p) + "\n" + to_string(run.config));
  const CodeFunctions code = functions_of(run.text, p);
  HostProblem host = make_host_problem(p, 7);
  if (is_backward(p)) set_forward_outputs(host, code);
  Tensors tensors = host.tensors();
  std::vector<std::vector<std::byte>> arrays;
  std::vector<std::vector<float>> gradients;
  std::vector<std::uint64_t> words;
  for (const CodeArgument& argument : code_arguments(p.args)) {
    arrays.push_back(text_argument(argument.name).bytes());
    words.push_back(reinterpret_cast<std::uintptr_t>(arrays.back().data()));
    if (!argument.is_array) std::memcpy(&words.back(), arrays.back().data(), 4);
  }
  for (const Darg& darg : dargs_of(p)) {
    gradients.emplace_back(static_cast<std::size_t>(darg.elements));
    words.push_back(reinterpret_cast<std::uintptr_t>(gradients.back().data()));
  }
  tensors.code_arguments = words.data();
  const Launch launch = run.family->launch(run.config, p, device_of(*run.family));
  constexpr std::size_t kAligned = 256;
  std::vector<std::byte> workspace(launch.workspace_bytes + kAligned, std::byte{0xff});
  const auto begin = reinterpret_cast<std::uintptr_t>(workspace.data());
  alignas(kCounterBytes) std::array<unsigned, kCounterBytes / 4> counters{};
  const RunMemory memory{.workspace = workspace.data() + (kAligned - begin % kAligned),
                         .counters = counters.data()};
  for (LaunchStep step : launch.steps) {
    bind_on_host(step, tensors, memory);
    text.launch(step);
  }
  EXPECT_EQ(fault_of(host, code, gradients), "");
}

void expect_all_right(std::string_view family) {
#ifdef ATTNFORGE_THREADS_OF_SYSTEM
  GTEST_SKIP() << "blocks that wait for one another want threads that take turns";
#endif
  for (const TextLaunch& text : text_launches())
    if (text.family == family) expect_right(text);
}
TEST(RandomTextsOnTheHost, Forward) { expect_all_right("fwd_mma_sm80"); }
TEST(RandomTextsOnTheHost, ForwardOnHopper) { expect_all_right("fwd_wgmma_sm90a"); }
TEST(RandomTextsOnTheHost, Backward) { expect_all_right("bwd_mma_sm80"); }
TEST(RandomTextsOnTheHost, BackwardOnHopper) { expect_all_right("bwd_wgmma_sm90a"); }

}  // namespace
}  // namespace attnforge
