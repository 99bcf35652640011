// That the faults of the GPU tests are what NVRTC would compile, so that a failure there is the
// evaluator's.
#include "tests/tuner/faulty_family.h"

#include <gtest/gtest.h>

#include "generator/arch.h"
#include "runtime/compiler.h"

namespace attnforge {
namespace {

using testing::FaultKind;

template <FaultKind kKind>
void expect_compiles() {
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse");
  const DeviceFacts& device = typical_device("90a");
  const Candidate candidate = testing::faulty_candidate<kKind>(problem, device);
  const Source source = candidate.family->render(candidate.config, problem);
  EXPECT_GT(compile(source, device.arch).bytes.size(), 1000u) << candidate.config.family;
}

TEST(FaultyFamily, Compiles) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  expect_compiles<FaultKind::kPastEnd>();
  expect_compiles<FaultKind::kBeforeStart>();
  expect_compiles<FaultKind::kPastEndOfLse>();
  expect_compiles<FaultKind::kUnwritten>();
  expect_compiles<FaultKind::kUnwrittenLse>();
  expect_compiles<FaultKind::kWrong>();
  expect_compiles<FaultKind::kWrongLse>();
  expect_compiles<FaultKind::kNan>();
  expect_compiles<FaultKind::kInputChanged>();
  expect_compiles<FaultKind::kSecondRun>();
  expect_compiles<FaultKind::kSharedMemory>();
  expect_compiles<FaultKind::kSlow>();
  expect_compiles<FaultKind::kIllegal>();
}

}  // namespace
}  // namespace attnforge
