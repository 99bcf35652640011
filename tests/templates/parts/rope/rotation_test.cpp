// rotation_test.cpp - a problem with a rope: the kernel of the problem without one, after a step
// that writes rotated q and k into the workspace. No compiler, no GPU.
#include "templates/parts/rope/host.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "templates/parts/rope/params.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

using testing::HasSubstr;

struct Served {
  const char* family;
  const char* arch;
  const char* problem;
};
void PrintTo(const Served& served, std::ostream* out) { *out << served.problem; }
constexpr Served kServed[] = {
    {"fwd_wgmma_sm90a", "90a",
     "fwd bf16 batch=3 num_heads=32:8 seqlen=100:4096 head_dim=128 causal rope=half"},
    {"fwd_mma_sm80", "89",
     "fwd fp16 batch=2 num_heads=5 seqlen=1000 head_dim=72 rope=interleaved rope_dim=40"},
    {"fwd_regtile_f32", "86", "fwd fp32 batch=1 num_heads=8:2 seqlen=1024 head_dim=64 rope=half"},
    {"fwd_wmma", "86", "fwd bf16 batch=1 num_heads=8 seqlen=1024 head_dim=64 causal rope=half"},
};

class Rotation : public testing::TestWithParam<Served> {
 protected:
  const Family& family = *find_family(GetParam().family);
  const DeviceFacts& device = typical_device(GetParam().arch);
  const Problem problem = parse_problem(GetParam().problem);
  const Candidate best = candidates(family, problem, device).front();

  Launch launch_of(const Problem& p) const { return family.launch(best.config, p, device); }
};

TEST_P(Rotation, IsAStepBeforeTheKernelOfTheProblemWithoutARope) {
  const Launch launch = launch_of(problem), plain = launch_of(without_rope(problem));
  ASSERT_EQ(launch.steps.size(), 2u);
  ASSERT_EQ(plain.steps.size(), 1u);
  const LaunchStep &step = launch.steps[0], &kernel = launch.steps[1];
  EXPECT_EQ(test::places_of(own_argument<bind_rope>(), step).size(), 1u);
  EXPECT_TRUE(step.from_workspace.empty()) << "it reads the run's tensors";
  EXPECT_EQ(test::places_of(own_argument<bind_rope>(), kernel).size(), 0u);
  EXPECT_EQ(kernel.kernel, plain.steps[0].kernel);
  EXPECT_EQ(kernel.grid.x, plain.steps[0].grid.x);
  EXPECT_EQ(kernel.params, plain.steps[0].params);
}

TEST_P(Rotation, KernelReadsWhereTheStepWrites) {
  using Operand = TensorMapSpec::Operand;
  const Launch launch = launch_of(problem);
  const auto written = test::parts_of<ScratchArgument>(launch.steps[0]);
  const std::vector<ScratchTensor>& read = launch.steps[1].from_workspace;
  ASSERT_EQ(written.size(), 2u);
  ASSERT_EQ(read.size(), 2u);
  EXPECT_EQ(read[0].operand, Operand::kQ);
  EXPECT_EQ(read[1].operand, Operand::kK);
  const std::int64_t element = bytes_of(problem.dtype_q, 1);
  const std::int64_t heads[] = {problem.num_heads_q, problem.num_heads_kv},
                     rows[] = {problem.seqlen_q, problem.seqlen_kv};
  for (std::size_t i = 0; i < 2; ++i) {
    std::size_t begin = 0;  // waits in the argument
    std::memcpy(&begin, launch.steps[0].params.data() + written[i].first, sizeof(begin));
    EXPECT_EQ(begin, read[i].begin);
    EXPECT_EQ(read[i].begin % 256, 0u);
    EXPECT_EQ(read[i].stride_head, problem.head_dim);
    EXPECT_EQ(read[i].stride_row, heads[i] * problem.head_dim);
    EXPECT_EQ(read[i].stride_batch, rows[i] * heads[i] * problem.head_dim);
    const std::size_t end = i == 0 ? read[1].begin : launch.workspace_bytes;
    EXPECT_GE(end, read[i].begin + problem.batch * read[i].stride_batch * element);
  }
}

TEST_P(Rotation, ThreadsCoverEveryHeadOfEveryToken) {
  const Launch launch = launch_of(problem);
  const RotationWork work{.dtype = int(problem.dtype_q),
                          .head_dim = problem.head_dim,
                          .rope_dim = effective_rope_dim(problem)};
  EXPECT_GE(work.items() * work.vector() * 2, problem.head_dim);
  EXPECT_LE(work.items() * work.tokens(), int(launch.steps[0].block.x));
  const auto blocks = [&](std::int64_t tokens, std::int64_t heads) {
    return (tokens * ((heads + work.kHeads - 1) / work.kHeads) + work.tokens() - 1) / work.tokens();
  };
  EXPECT_EQ(launch.steps[0].grid.x,
            blocks(problem.batch * problem.seqlen_q, problem.num_heads_q) +
                blocks(problem.batch * problem.seqlen_kv, problem.num_heads_kv));
}

TEST_P(Rotation, WorkspaceGrowsWithEverySize) {
  std::size_t least = 0;
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t seqlen_q : {0, 1, 77, 1000}) {
      for (const std::int64_t seqlen_kv : {0, 1, 333, 5000}) {
        Problem p = problem;
        p.batch = batch, p.seqlen_q = seqlen_q, p.seqlen_kv = seqlen_kv;
        const std::size_t bytes = launch_of(p).workspace_bytes;
        p.seqlen_kv += 100;
        EXPECT_GE(launch_of(p).workspace_bytes, bytes);
        p.seqlen_q += 100;
        EXPECT_GE(launch_of(p).workspace_bytes, bytes);
        p.batch += 1;
        EXPECT_GE(launch_of(p).workspace_bytes, bytes);
        least = std::max(least, bytes);
      }
    }
  }
  EXPECT_GT(least, 0u);
}

TEST_P(Rotation, SourceOfTheKernelNamesNoRope) {
  const std::string plain = family.render(best.config, without_rope(problem)).entry;
  const std::string entry = family.render(best.config, problem).entry;
  EXPECT_EQ(entry.substr(0, plain.size()), plain) << "then the step";
  EXPECT_THAT(plain, HasSubstr(".rope = 0, .rope_dim = 0"));
  EXPECT_THAT(entry.substr(plain.size()), HasSubstr("Rotate<RotationWork"));
}

TEST_P(Rotation, CostsTheKernelsTimeAndThatOfItsBytes) {
  const double kernel = family.estimate_us(best.config, without_rope(problem), device);
  const double step = rotation_us(problem, device);
  EXPECT_GT(step, 0);
  EXPECT_DOUBLE_EQ(family.estimate_us(best.config, problem, device), kernel + step);
  EXPECT_DOUBLE_EQ(best.estimate_us, kernel + step) << "as a search has it";
  Problem longer = problem;
  longer.batch *= 16;
  EXPECT_GT(rotation_us(longer, device), step);
}

TEST_P(Rotation, LeavesTheCandidatesOfTheProblemWithoutARope) {
  std::vector<Config> with, without;
  for (const Candidate& c : candidates(family, problem, device)) with.push_back(c.config);
  for (const Candidate& c : candidates(family, without_rope(problem), device))
    without.push_back(c.config);
  EXPECT_EQ(with, without);
}

INSTANTIATE_TEST_SUITE_P(Families, Rotation, testing::ValuesIn(kServed),
                         [](const auto& info) { return std::string(info.param.family); });

TEST(RotationStep, MoreTokensThanItCountsAreRefused) {
  Problem problem = parse_problem("fwd fp16 num_heads=1 head_dim=8 rope=half seqlen=1024");
  EXPECT_EQ(too_much_to_rotate(problem), "");
  problem.batch = 1 << 21;
  EXPECT_THAT(too_much_to_rotate(problem), HasSubstr("more than 2^30"));
}

}  // namespace
}  // namespace attnforge
