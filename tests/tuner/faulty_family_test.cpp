// That the faults of the GPU tests are what NVRTC would compile, so that a failure there is the
// evaluator's.
#include "tests/tuner/faulty_family.h"

#include <gtest/gtest.h>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"

namespace attnforge {
namespace {

// One source with the code of all faults: of 13 sources each would be fwd_naive again.
TEST(FaultyFamily, FaultsAreWhatNvrtcCompiles) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Problem problem = parse_problem(
      "fwd bf16 batch=2 num_heads=4:2 seqlen=77:133 head_dim=64 causal lse");
  const DeviceFacts& device = typical_device("90a");
  const Candidate candidate = testing::faulty_candidate<testing::FaultKind::kWrong>(problem,
                                                                                    device);
  std::string code;
  for (const testing::Fault& fault : testing::kFaults) {
    if (fault.name != "syntax") code += "{ " + std::string(fault.code) + " }\n";
  }
  const Source source = testing::with_fault(candidate.config, problem, code);
  EXPECT_GT(compile(source, device.arch).bytes.size(), 1000u);
}

// An evaluator compiles once what has one digest.
TEST(FaultyFamily, HasADigestOfItsOwn) {
  const Problem problem = parse_problem("fwd bf16 num_heads=2 seqlen=77 head_dim=64 causal");
  const Candidate candidate = testing::faulty_candidate<testing::FaultKind::kWrong>(
      problem, typical_device("90a"));
  EXPECT_NE(digest(candidate.family->render(candidate.config, problem)),
            digest(find_family("fwd_naive")->render(candidate.config, problem)));
}

}  // namespace
}  // namespace attnforge
