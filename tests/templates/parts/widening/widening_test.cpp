// widening_test.cpp - caches of fewer bits under many queries: the kernel of the problem in 16
// bits, after a step that writes k and v so into the workspace; when a model takes it, and when it
// may not. No compiler, no GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <set>
#include <string>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/features.h"
#include "reference/parts/scales.h"
#include "templates/parts/pages/params.h"
#include "templates/parts/widening/host.h"
#include "templates/parts/widening/params.h"
#include "templates/registry.h"
#include "tests/support/argument_fields.h"

namespace attnforge {
namespace {

using testing::HasSubstr;
using Operand = TensorMapSpec::Operand;

const char* const kServed[] = {
    "fwd bf16 k=int8 v=int8 kv_scale=token batch=3 num_heads=32:8 seqlen=400:4096 head_dim=128 "
    "causal lse",
    "fwd fp16 k=e4m3 v=int4 kv_scale=group64 batch=2 num_heads=8:2 seqlen=300:1000 head_dim=64 "
    "lengths=packed window_left=100 softcap=20",
    "fwd bf16 k=e5m2 v=e5m2 kv_scale=head batch=4 num_heads=8:2 seqlen=300:1000 head_dim=64 "
    "lengths=packed page_size=16 causal sinks",
    "fwd fp16 v=int8 kv_scale=tensor batch=2 num_heads=8:2 seqlen=300:1000 head_dim=192:128 "
    "lengths=used page_size=24",
    "fwd bf16 k=int4 batch=2 num_heads=8:2 seqlen=300:1000 head_dim=128 blocks=64 "
    "score=\"0.5f * s\" lengths=used",
};

class Widening : public testing::TestWithParam<const char*> {
 protected:
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const DeviceFacts& device = typical_device("90a");
  const Problem problem = parse_problem(GetParam());
  const Candidate best = candidates(family, problem, device).front();

  Launch launch_of(const Problem& p) const { return family.launch(best.config, p, device); }
};

TEST_P(Widening, IsAStepBeforeTheKernelOfTheProblemInSixteenBits) {
  const Launch launch = launch_of(problem), plain = launch_of(widened(problem));
  ASSERT_EQ(launch.steps.size(), plain.steps.size() + 1);
  EXPECT_EQ(launch.steps_after, plain.steps_after);
  EXPECT_TRUE(launch.steps[0].from_workspace.empty()) << "it reads the run's tensors";
  EXPECT_FALSE(launch.steps[1].overlaps_previous) << "what it reads is written by then";
  for (std::size_t i = 0; i < plain.steps.size(); ++i) {
    const LaunchStep &step = launch.steps[i + 1], &own = plain.steps[i];
    EXPECT_EQ(test::argument_fault(step), "");
    EXPECT_EQ(step.kernel, own.kernel);
    EXPECT_EQ(step.grid.x, own.grid.x);
    EXPECT_EQ(step.params.size(), own.params.size());
    if (problem.lengths == Lengths::kPacked && has_pages(problem)) continue;  // a table of its own
    EXPECT_EQ(step.params, own.params);
    EXPECT_EQ(step.args, own.args);
  }
}

TEST_P(Widening, KernelReadsWhereTheStepWrites) {
  const Launch launch = launch_of(problem), plain = launch_of(widened(problem));
  const auto written = test::parts_of<ScratchArgument>(launch.steps[0]);
  std::size_t end = plain.workspace_bytes;
  for (const LaunchStep& step : launch.steps) {
    if (&step == &launch.steps[0]) continue;
    std::size_t i = 0;
    end = plain.workspace_bytes;
    for (const ScratchTensor& read : step.from_workspace) {
      ASSERT_LT(i, written.size());
      EXPECT_EQ(test::planned_at<std::size_t>(launch.steps[0], written[i++].first), read.begin);
      EXPECT_EQ(read.begin % 256, 0u);
      EXPECT_GE(read.begin, end);
      const int dim = read.operand == Operand::kV ? problem.head_dim_v : problem.head_dim;
      EXPECT_EQ(read.stride_head, dim);
      EXPECT_EQ(read.stride_row, problem.num_heads_kv * dim);
      end = read.begin +
            static_cast<std::size_t>(2 * problem.batch * problem.seqlen_kv * read.stride_row);
    }
    EXPECT_EQ(i, step.from_workspace.size());
  }
  EXPECT_GE(launch.workspace_bytes, end);
}

TEST_P(Widening, SourceOfTheKernelKnowsNoFewerBits) {
  const std::string plain = family.render(best.config, widened(problem)).entry;
  const Source source = family.render(best.config, problem);
  EXPECT_EQ(source.entry.substr(0, plain.size()), plain) << "then the step";
  EXPECT_THAT(source.entry.substr(plain.size()), HasSubstr("WidenKeys<Shape{"));
  ASSERT_FALSE(source.assembly.steps.empty());
  EXPECT_EQ(source.assembly.steps[0].kernel, "widen_k_and_v");
}

TEST_P(Widening, CostsTheKernelsTimeAndThatOfItsBytes) {
  const double kernel = family.estimate_us(best.config, widened(problem), device);
  const double step = widening_us(problem, device);
  EXPECT_GT(step, 0);
  EXPECT_DOUBLE_EQ(family.estimate_us(best.config, problem, device), kernel + step);
  EXPECT_DOUBLE_EQ(best.estimate_us, kernel + step) << "as a search has it";
  Problem longer = problem;
  longer.batch *= 16;
  EXPECT_GT(widening_us(longer, device), step);
}

TEST_P(Widening, LeavesTheCandidatesOfTheProblemInSixteenBits) {
  const auto texts = [&](const Problem& p) {
    std::set<std::string> texts;  // the step's time may make ties of two estimates
    for (const Candidate& c : candidates(family, p, device)) texts.insert(to_string(c.config));
    return texts;
  };
  EXPECT_EQ(texts(problem), texts(widened(problem)));
  EXPECT_EQ(parse_config(to_string(best.config)), best.config);
}

TEST_P(Widening, WorkspaceGrowsWithEverySize) {
  for (const std::int64_t batch : {0, 1, 3}) {
    for (const std::int64_t seqlen_kv : {0, 1, 333, 5000}) {
      Problem p = problem;
      p.batch = batch, p.seqlen_kv = seqlen_kv;
      const std::size_t bytes = launch_of(p).workspace_bytes;
      p.seqlen_kv += 100;
      EXPECT_GE(launch_of(p).workspace_bytes, bytes);
      p.batch += 1;
      EXPECT_GE(launch_of(p).workspace_bytes, bytes);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Problems, Widening, testing::ValuesIn(kServed));

/// Of packed queries: the run's pool and table are the step's alone.
TEST(WideningOfPages, KernelCountsThoseOfTheWorkspace) {
  const Problem problem = parse_problem(
      "fwd bf16 k=int8 v=int8 kv_scale=token batch=4 num_heads=8:2 seqlen=300:1000 head_dim=64 "
      "lengths=packed page_size=16");
  const Candidate best = candidates(*find_family("fwd_wgmma_sm90a"), problem, typical_device("90a"))
                             .front();
  const Launch launch = best.family->launch(best.config, problem, typical_device("90a"));
  constexpr std::int64_t kPages = 8, kRows = 128;  // of a sequence, of a page
  const LaunchStep& kernel = launch.steps[own_step(launch)];
  int maps = 0;
  for (const auto& [offset, map] : test::parts_of<TensorMapSpec>(kernel)) {
    if (!map.operand.of_keys) continue;
    const auto sizes = test::planned_at<TensorMapSizes>(kernel, offset);
    EXPECT_FALSE(map.batch_of_run);
    EXPECT_EQ(sizes.rows, kRows);
    EXPECT_EQ(sizes.batch, problem.batch * kPages);
    ++maps;
  }
  EXPECT_EQ(maps, 2);
  const auto tables = test::parts_of<ScratchArgument>(kernel);
  ASSERT_FALSE(tables.empty());
  const auto pages = test::planned_at<PagesParams>(
      kernel, tables.back().first - offsetof(PagesParams, table));
  EXPECT_EQ(pages.stride_batch, kPages);
  EXPECT_EQ(pages.num_pages, problem.batch * kPages);
  EXPECT_EQ(test::planned_at<std::size_t>(kernel, tables.back().first),
            test::planned_at<std::size_t>(launch.steps[0], offsetof(WideningParams, own_table)));
  for (const ScratchTensor& read : kernel.from_workspace)
    EXPECT_EQ(read.stride_batch, kRows * read.stride_row);
}

/// The family of the model's choice among all.
std::string chosen(const std::string& text, const char* arch = "90a") {
  return std::string(untuned(registry(), parse_problem(text), typical_device(arch)).family->name);
}

TEST(WideningChoice, IsOfManyQueriesOnHopperAlone) {
  const std::string heads = " num_heads=32:8 head_dim=128 ";
  for (const char* kv : {"k=int8 v=int8 kv_scale=token", "k=int4 v=int4 kv_scale=group64",
                         "k=e4m3 v=e4m3 kv_scale=head"}) {
    const std::string fwd = "fwd bf16 " + std::string(kv) + heads;
    for (const char* many :
         {"seqlen=4096:32768", "seqlen=4096:32768 causal", "batch=4 seqlen=2048 causal",
          "batch=8 seqlen=512:16384 lengths=packed page_size=16 causal"}) {
      EXPECT_EQ(chosen(fwd + many), "fwd_wgmma_sm90a") << fwd << many;
      EXPECT_EQ(chosen(fwd + many, "80"), "fwd_mma_sm80") << fwd << many;
    }
    EXPECT_EQ(chosen("fwd bf16 " + std::string(kv) +
                     " num_heads=71:1 head_dim=64 batch=91 "
                     "seqlen=5:25254 lengths=used page_size=32"),
              "fwd_wgmma_sm90a")
        << kv;
    for (const char* few : {"seqlen=1:32768", "seqlen=8:32768 causal",
                            "batch=64 seqlen=4:8192 lengths=used page_size=16"})
      EXPECT_EQ(chosen(fwd + few), "fwd_mma_sm80") << fwd << few;
  }
}

TEST(WideningChoice, IsRefusedToFewQueriesAndToBatchesOfAnySize) {
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const auto refusal = [&](const std::string& words, const std::string& heads = "8") {
    const Problem p = parse_problem(
        "fwd bf16 k=int8 v=int8 kv_scale=token head_dim=64 num_heads=" + heads + " " + words);
    const std::string reason = rejection(family, p, typical_device("90a").arch);
    EXPECT_EQ(may_be_widened(p), reason.empty()) << "tolerances count the rounding: " << words;
    return reason;
  };
  EXPECT_THAT(refusal("seqlen=1:4096"), HasSubstr("more than 16 queries"));
  EXPECT_THAT(refusal("seqlen=16:4096"), HasSubstr("more than 16 queries"));
  EXPECT_EQ(refusal("seqlen=17:4096"), "");
  EXPECT_THAT(refusal("seqlen=16:4096", "8:1"), HasSubstr("128 rows"));
  EXPECT_EQ(refusal("seqlen=16:4096", "9:1"), "");
  EXPECT_EQ(refusal("seqlen=5:4096", "20:1"), "") << "as 8 queries, whose config it takes";
  EXPECT_THAT(refusal("seqlen=4:4096", "20:1"), HasSubstr("128 rows"));
  EXPECT_THAT(refusal("seqlen=0:4096", "20:1"), HasSubstr("128 rows"));
  EXPECT_THAT(refusal("seqlen=300:4096 batch_invariant"), HasSubstr("batch_invariant"));
}

TEST(WideningChoice, NeverTakesMoreThanAShareOfTheMemory) {
  const std::string long_cache =
      "fwd bf16 k=int8 v=int8 kv_scale=token num_heads=32:8 head_dim=128 "
      "seqlen=512:131072 causal batch=";
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  EXPECT_EQ(chosen(long_cache + "4"), "fwd_wgmma_sm90a");
  EXPECT_EQ(chosen(long_cache + "64"), "fwd_mma_sm80") << "its workspace would be 34 GB";
  const Problem large = parse_problem(long_cache + "64");
  const Config config = candidates(family, parse_problem(long_cache + "4"), device).at(0).config;
  EXPECT_THAT(illegal(family, config, large, device), HasSubstr("of the GPU's memory"));
  EXPECT_TRUE(candidates(family, large, device).empty());
}

}  // namespace
}  // namespace attnforge
