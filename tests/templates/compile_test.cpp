// compile_test.cpp - NVRTC compiles every family for every arch that it serves: the config used
// when nothing was measured without a spill or a serialized wgmma, and a few others. Products get
// most of the time. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <span>
#include <thread>

#include "attnforge/error.h"
#include "generator/candidates.h"
#include "runtime/compiler.h"
#include "templates/registry.h"
#include "tests/support/hostile_configs.h"
#include "tests/templates/family_on_arch.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

constexpr unsigned kSeed = 1;
// Per family and arch, besides the untuned one of each problem.
constexpr int kRandomConfigs = 2;
constexpr int kRandomConfigsOfOthers = 1;      // than products
constexpr std::size_t kUnsearchedConfigs = 3;  // of a family
constexpr int kThreads = 2;

struct Job {
  Problem problem;
  Candidate candidate;
  bool is_default = true;  // what a user gets who never tunes: spills are not accepted
};

/// Where zero spills are promised every problem is compiled for products; elsewhere, to save time,
/// every second.
bool promised(const Arch& arch) { return arch.sm == 86 || arch.sm == 89 || arch.sm == 90; }

/// A family of one arch has time for more problems there.
bool serves_one_arch(const Family& family) {
  return std::count_if(archs().begin(), archs().end(), [&](const Arch& arch) {
           return rejection(family, test::template_problems()[0], arch).empty();
         }) == 1;
}

std::vector<Problem> problems_of_product(const test::FamilyOnArch& c) {
  std::vector<Problem> served;
  const auto add = [&](std::span<const Problem> problems) {
    const std::size_t step = promised(*c.arch) ? 1 : 2;
    for (std::size_t i = 0; i < problems.size(); i += step) {
      if (rejection(*c.family, problems[i], *c.arch).empty()) served.push_back(problems[i]);
    }
  };
  add(test::problems_of(*c.family));
  if (serves_one_arch(*c.family)) add(test::hopper_problems());
  return served;
}

/// Dealt out to the archs in turn: each problem, and with it each feature, is compiled for one, and
/// each arch has some.
std::vector<Problem> problems_of_other(const test::FamilyOnArch& c) {
  std::vector<Problem> served;
  const std::size_t arch = static_cast<std::size_t>(c.arch - archs().data());
  std::size_t dealt = 0;
  for (const Problem& problem : test::problems_of(*c.family)) {
    if (!rejection(*c.family, problem, *c.arch).empty()) continue;
    if (dealt++ % archs().size() == arch) served.push_back(problem);
  }
  return served;
}

std::vector<Job> jobs_of(const test::FamilyOnArch& c) {
  const DeviceFacts& device = typical_device(c.arch->name);
  const bool product = c.family->tier == Tier::kProduct;
  const Family* const families[] = {c.family};
  std::vector<Job> jobs;
  for (const Problem& problem : product ? problems_of_product(c) : problems_of_other(c))
    jobs.push_back({problem, untuned(families, problem, device)});
  if (jobs.empty()) return jobs;
  std::mt19937 random(kSeed);
  const std::size_t defaults = jobs.size();
  for (int i = 0; i < (product ? kRandomConfigs : kRandomConfigsOfOthers); ++i) {
    const Problem problem = jobs[random() % defaults].problem;
    const std::vector<Candidate> all = candidates(*c.family, problem, device);
    jobs.push_back({problem, all[random() % all.size()], false});
  }
  return jobs;
}

/// Of each of the first problems a config that is accepted from a caller and that no search tries.
std::vector<Job> unsearched_jobs(const Family& family, const DeviceFacts& device) {
  std::vector<Job> jobs;
  for (const Problem& problem : test::hostile_problems()) {
    for (const Candidate& each : test::unsearched_configs(family, problem, device, 1, kSeed))
      jobs.push_back({problem, each, false});
    if (jobs.size() == kUnsearchedConfigs) break;
  }
  return jobs;
}

/// "" if the compiled kernel can be launched on the arch, else why not.
std::string complaint(const Job& job, const Cubin& cubin, const Arch& arch) {
  const Launch launch = job.candidate.family->launch(job.candidate.config, job.problem,
                                                     typical_device(arch.name));
  for (const LaunchStep& step : launch.steps) {
    const int threads = static_cast<int>(step.block.x * step.block.y * step.block.z);
    const int smem_bytes = step.smem_bytes + cubin.smem_static_bytes;
    if (smem_bytes > arch.smem_per_block_bytes)
      return fmt::format("{} bytes of shared memory", smem_bytes);
    if (cubin.registers == 0 || blocks_per_sm(arch, cubin.registers, threads, smem_bytes) < 1) {
      return fmt::format("{} registers for {} threads", cubin.registers, threads);
    }
  }
  // Promised for sm_86, sm_89 and sm_90; sm_80 and sm_120 keep it too. The assembler for sm_100
  // spills a few loop constants of kernels that it holds in registers elsewhere. Where warpgroups
  // share registers out, the loading thread may spill in its 24: it is not on the critical path,
  // and a consumer that spilled would show as a serialized wgmma.
  const bool shares_registers = job.candidate.config.family == "fwd_wgmma_sm90a";
  const int allowed_bytes = arch.sm == 100 || shares_registers ? 32 : 0;
  if (job.is_default && std::max(cubin.spill_store_bytes, cubin.spill_load_bytes) > allowed_bytes) {
    return fmt::format("spills {} bytes, loads {}", cubin.spill_store_bytes,
                       cubin.spill_load_bytes);
  }
  if (job.is_default && cubin.wgmma_serialized) return "wgmma serialized";
  return "";
}

/// Compiles and judges; any problem as text.
std::string run(const Job& job, const Arch& arch) {
  std::string what;
  try {
    what = complaint(
        job, compile(job.candidate.family->render(job.candidate.config, job.problem), arch), arch);
  } catch (const Error& error) {
    what = error.what();
  }
  if (what.empty()) return "";
  return fmt::format("{}{}\n  {}\n  {}\n", job.is_default ? "" : fmt::format("seed {}: ", kSeed),
                     to_string(job.problem), to_string(job.candidate.config), what);
}

void expect_all_good(const std::vector<Job>& jobs, const Arch& arch) {
  std::vector<std::string> complaints(jobs.size());
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (std::size_t i = static_cast<std::size_t>(t); i < jobs.size(); i += kThreads)
        complaints[i] = run(jobs[i], arch);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& complaint : complaints) EXPECT_EQ(complaint, "");
}

class TemplateCompiles : public testing::TestWithParam<test::FamilyOnArch> {};

TEST_P(TemplateCompiles, DefaultsWithoutSpillsAndOthersAtAll) {
  const Arch& arch = *GetParam().arch;
  const NvrtcFacts& nvrtc = nvrtc_facts();
  if (!nvrtc.available) GTEST_SKIP() << nvrtc.problem;
  if (std::find(nvrtc.archs.begin(), nvrtc.archs.end(), arch.sm) == nvrtc.archs.end()) {
    GTEST_SKIP() << "NVRTC " << nvrtc.version_text() << " does not know sm_" << arch.name;
  }
  const std::vector<Job> jobs = jobs_of(GetParam());
  if (jobs.empty()) GTEST_SKIP() << GetParam().family->name << " does not run on sm_" << arch.name;
  if (GetParam().family->tier == Tier::kProduct) {
    ASSERT_GE(jobs.size(), promised(arch) ? 8u : 4u);
  }

  expect_all_good(jobs, arch);
}

class UnsearchedConfigs : public testing::TestWithParam<const Family*> {};

TEST_P(UnsearchedConfigs, ThatAreAcceptedCompile) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const DeviceFacts& device = typical_device("90a");
  const std::vector<Job> jobs = unsearched_jobs(*GetParam(), device);
  if (jobs.empty()) GTEST_SKIP() << GetParam()->name << " takes what is searched and no more";
  expect_all_good(jobs, device.arch);
}

INSTANTIATE_TEST_SUITE_P(Registry, UnsearchedConfigs,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

INSTANTIATE_TEST_SUITE_P(Registry, TemplateCompiles, testing::ValuesIn(test::families_on_archs()),
                         [](const auto& info) { return test::name_of(info.param); });

}  // namespace
}  // namespace attnforge
