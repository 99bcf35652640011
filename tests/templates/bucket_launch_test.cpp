// bucket_launch_test.cpp - a kernel is loaded for its bucket, and what it is given then (its
// symbols, its blocks and the parts of its argument) must serve the launch of every problem of the
// bucket. For every family: launches of drawn problems beside the bucket's own. No compiler, no
// GPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/problem/bucket.h"
#include "templates/registry.h"
#include "tests/support/any_problem.h"
#include "tests/support/bucket_members.h"
#include "tests/support/random_choices.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

constexpr int kMembers = 200;  // of each bucket
constexpr std::uint64_t kSeed = 41;

/// What servers and training runs ask for, where lists have powers of two.
std::vector<Problem> users_problems() {
  std::vector<Problem> problems;
  for (const char* text : {
           "fwd bf16 batch=17 num_heads=24:8 seqlen=1:5000 head_dim=128 lengths=used page_size=16",
           "fwd bf16 batch=40 num_heads=24:8 seqlen=1:5000 head_dim=128 lengths=used page_size=16",
           "fwd bf16 batch=7 num_heads=32:8 seqlen=4:6000 head_dim=128 lengths=used page_size=16",
           "fwd bf16 batch=13 num_heads=32:8 seqlen=4:6000 head_dim=128",
           "fwd bf16 batch=3 num_heads=28:4 seqlen=5:9000 head_dim=128 causal lengths=packed "
           "page_size=64",
           "fwd fp16 batch=11 num_heads=71:1 seqlen=1:3000 head_dim=64",
           "fwd bf16 batch=5 num_heads=128:1 seqlen=2:7000 head_dim=192:128",
           "fwd fp16 batch=150 num_heads=12:1 seqlen=3:2500 head_dim=72 lengths=used",
           "fwd bf16 batch=33 num_heads=40:8 seqlen=1:12000 head_dim=128 batch_invariant",
           "fwd fp32 batch=9 num_heads=28:4 seqlen=1:2900 head_dim=128 lengths=used",
           "fwd bf16 batch=21 num_heads=32:8 seqlen=700 head_dim=128 causal lengths=packed lse",
           "fwd bf16 batch=5 num_heads=16 seqlen=900 head_dim=96 blocks=64 lengths=used",
           "bwd bf16 batch=21 num_heads=28:4 seqlen=700 head_dim=128 causal lengths=packed",
           "bwd fp16 batch=5 num_heads=40:8 seqlen=900:1400 head_dim=80 deterministic",
       })
    problems.push_back(parse_problem(text));
  return problems;
}

/// Of `family`: problems that serve it somewhere, each with an arch.
struct Asked {
  Problem problem;
  const DeviceFacts* device;
};
std::vector<Asked> asked_of(const Family& family) {
  constexpr int kDrawn = 150;
  std::vector<Problem> problems = users_problems();
  const auto listed = test::problems_of(family);
  problems.insert(problems.end(), listed.begin(), listed.end());
  test::RandomChoices choices(kSeed);
  for (int i = 0; i < kDrawn; ++i) {
    const test::MostSizes most{.batch_bits = 8, .heads_bits = 4, .seqlen_bits = 14};
    problems.push_back(family.op == Op::kBackward ? test::any_backward_problem(choices, most)
                                                  : test::any_problem(choices, most));
  }
  // Each on one arch, in turn: an arch that the problem is not served on leaves it to the next.
  const std::vector<std::string_view> names = known_archs();
  std::vector<Asked> asked;
  std::size_t turn = 0;
  for (const Problem& problem : problems) {
    if (problem.op != family.op || problem.batch == 0 || problem.seqlen_q == 0) continue;
    for (std::size_t tried = 0; tried < names.size(); ++tried) {
      const DeviceFacts& device = typical_device(names[turn++ % names.size()]);
      if (!rejection(family, bucket(problem), device.arch).empty()) continue;
      asked.push_back({problem, &device});
      break;
    }
  }
  return asked;
}

/// The two best, and others: of these at least half split keys, where any do.
std::vector<Config> configs_of(const Family& family, const Problem& problem,
                               const DeviceFacts& device, test::RandomChoices& choices) {
  constexpr std::size_t kBest = 2, kOthers = 6;
  std::vector<Config> best, splits;
  for (const Candidate& candidate : candidates(family, problem, device)) {
    const bool of_splits = std::ranges::any_of(candidate.config.fields, [](const auto& field) {
      return field.first == "num_splits" && field.second > 1;
    });
    (of_splits ? splits : best).push_back(candidate.config);
  }
  std::vector<Config> chosen;
  for (const std::vector<Config>* from : {&best, &splits}) {
    for (std::size_t i = 0; i < std::min(kBest, from->size()); ++i) chosen.push_back((*from)[i]);
  }
  for (std::size_t i = 0; i < kOthers && !(best.empty() && splits.empty()); ++i)
    chosen.push_back(
        choices.among(splits.empty() || (i % 2 == 0 && !best.empty()) ? best : splits));
  return chosen;
}

/// "" if kernels that were loaded for `loaded` run `launch`, within `workspace_bytes`.
std::string fault_of(const Launch& launch, const Launch& loaded, const Arch& arch,
                     std::size_t workspace_bytes) {
  if (launch.steps.size() != loaded.steps.size())
    return fmt::format("{} steps, {} of the bucket", launch.steps.size(), loaded.steps.size());
  for (std::size_t i = 0; i < launch.steps.size(); ++i) {
    const LaunchStep &step = launch.steps[i], &of_bucket = loaded.steps[i];
    const auto fault = [&](const std::string& what) {
      return fmt::format("step {}, {}: {}", i, step.kernel, what);
    };
    if (step.kernel != of_bucket.kernel) return fault("the bucket's is " + of_bucket.kernel);
    if (step.smem_bytes > arch.smem_per_block_bytes)  // the limit that Kernel::load() sets
      return fault(fmt::format("{} bytes of shared memory, and a block may have {}",
                               step.smem_bytes, arch.smem_per_block_bytes));
    if (step.block != of_bucket.block) return fault("another block");
    if (step.args != of_bucket.args) return fault("other parts of the argument");
    if (step.params.size() != of_bucket.params.size()) return fault("another size of the argument");
    if (step.grid.x < 1 || step.grid.x > kMaxGridX || step.grid.y < 1 || step.grid.y > 65535 ||
        step.grid.z < 1 || step.grid.z > 65535)
      return fault(fmt::format("a grid of {}x{}x{}", step.grid.x, step.grid.y, step.grid.z));
  }
  if (launch.workspace_bytes > workspace_bytes)
    return fmt::format("{} bytes of workspace, and the bucket's {} are said to suffice",
                       launch.workspace_bytes, workspace_bytes);
  return "";
}

/// The first of `members`, problems of the bucket of `rounded`, that a config does not serve.
std::string fault_of(const Family& family, const Problem& rounded,
                     const std::vector<Config>& configs, const std::vector<Problem>& members,
                     const DeviceFacts& device) {
  for (const Config& config : configs) {
    const Launch loaded = family.launch(config, rounded, device);
    for (const Problem& problem : members) {
      std::size_t bound = loaded.workspace_bytes;
      if (problem.batch_invariant) {  // its bucket has other batches, too
        Problem largest = rounded;
        largest.batch = problem.batch;
        bound = family.launch(config, largest, device).workspace_bytes;
      }
      const std::string fault = fault_of(family.launch(config, problem, device), loaded,
                                         device.arch, bound);
      if (!fault.empty())
        return fmt::format("{}\n  sm_{} \"{}\"\n  of \"{}\"\n  {}", fault, device.arch.name,
                           to_string(problem), to_string(rounded), to_string(config));
    }
  }
  return "";
}

class BucketLaunch : public testing::TestWithParam<const Family*> {};

TEST_P(BucketLaunch, HoldsForEveryProblemOfTheBucket) {
  const Family& family = *GetParam();
  test::RandomChoices choices(kSeed);
  int buckets = 0;
  for (const Asked& asked : asked_of(family)) {
    const Problem rounded = bucket(asked.problem);
    const std::vector<Config> configs = configs_of(family, rounded, *asked.device, choices);
    std::vector<Problem> members = {asked.problem};
    while (members.size() < kMembers)
      members.push_back(test::member_of_bucket(choices, asked.problem));
    const std::string fault = fault_of(family, rounded, configs, members, *asked.device);
    if (!fault.empty()) ADD_FAILURE() << fault << "\n  seed " << kSeed;
    buckets += configs.empty() ? 0 : 1;
  }
  EXPECT_GE(buckets, 8);
}

INSTANTIATE_TEST_SUITE_P(Registry, BucketLaunch,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
