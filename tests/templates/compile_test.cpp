// compile_test.cpp - NVRTC compiles every family: the config used when nothing was measured without
// a spill or a serialized wgmma, and others at all: those without wgmma, of which the assembler
// refuses nothing, as C++ alone. Compiles take a second each, so they are
// chosen: of a product every part on the oldest and the newest arch of the promise, some on every
// other arch, every head dim and every searched value of an axis somewhere; of the others the
// problems with most parts on one arch. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <set>
#include <span>
#include <sstream>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "generator/shape.h"
#include "runtime/compile/compiler.h"
#include "templates/ops/append_kv/params.h"
#include "templates/registry.h"
#include "tests/support/hostile_configs.h"
#include "tests/templates/compile_together.h"
#include "tests/templates/hopper/fwd_wgmma_sm90a_configs.h"
#include "tests/templates/problems.h"

namespace attnforge {
namespace {

using Words = std::set<std::string>;

constexpr unsigned kSeed = 1;
constexpr std::size_t kUnsearchedConfigs = 2;  // of a product; one of the others
constexpr std::size_t kAllProblems = 1000;
constexpr std::size_t kProblemsElsewhere = 1;  // of a product, on an arch that has not all parts
constexpr std::size_t kProblemsOfOthers = 3;   // families; they have most parts between them
// Of the other families: the arch with the least of shared memory and of threads per SM.
constexpr std::string_view kArchOfOthers = "86";
// Where the values of axes are compiled: the arch with the most of them.
constexpr std::string_view kArchOfAxes = "90a";

struct Job {
  const Arch* arch = nullptr;
  Problem problem;
  Candidate candidate;
  bool is_default = true;  // what a user gets who never tunes: spills are not accepted
};

/// Of those where zero spills are promised: sm_89 has the limits of sm_86 and the same
/// instructions, and on sm_90 gradients are another family's.
bool has_all_parts(const Family& family, const Arch& arch) {
  return arch.sm == 86 || (arch.sm == 90 && family.name != "bwd_mma_sm80");
}

// ---- What a compile is of, as words ----

/// The fields of the problem's Shape: "dtype = 2", "right_bound = 1". Of a head dim the next power
/// of two, where kernels change their tiles.
Words parts_of(const Problem& problem) {
  Words parts;
  std::istringstream fields(initializer(shape_of(problem)));
  for (std::string field; std::getline(fields, field, ',');) {
    const std::size_t value = field.find("= ") + 2;
    if (field.find("dim") != std::string::npos)
      field.replace(
          value, std::string::npos,
          std::to_string(std::bit_ceil(static_cast<unsigned>(std::atoi(field.c_str() + value)))));
    parts.insert(field);
  }
  return parts;
}

std::string head_dims_of(const Problem& problem) {
  return fmt::format("head_dim = {}:{}", problem.head_dim, problem.head_dim_v);
}

/// "block_n=128". Of numbers that launches alone read, whether they are more than the least. And
/// what decides together how an SM's registers are shared out.
Words values_of(const Config& config) {
  Words values;
  if (config.family == "fwd_wgmma_sm90a")
    values.insert(fmt::format("{} warpgroups in {} blocks", config.get("warpgroups"),
                              config.get("blocks_per_sm")));
  for (const auto& [name, value] : config.fields) {
    const bool of_launch = name == "head_group_mb" || name == "num_splits";
    values.insert(fmt::format("{}={}", name, of_launch ? value > (name == "num_splits") : value));
  }
  return values;
}

std::size_t count_new(const Words& words, const Words& known) {
  return static_cast<std::size_t>(std::count_if(
      words.begin(), words.end(), [&](const std::string& word) { return !known.contains(word); }));
}

// ---- What is compiled ----

/// Adds the default configs of problems, always of the one with the most parts that `parts` does
/// not have, a head dim that no job has counting as one; until there is none or `most` were added.
void add_defaults(const Family& family, const Arch& arch, std::size_t most, Words& parts,
                  std::vector<Job>& jobs) {
  Words head_dims;
  for (const Job& job : jobs) head_dims.insert(head_dims_of(job.problem));
  const Family* const families[] = {&family};
  const std::vector<Problem> problems = test::problems_on(family, arch);
  for (std::size_t count = 0; count < most; ++count) {
    const Problem* best = nullptr;
    std::size_t best_new = 0;
    for (const Problem& problem : problems) {
      const std::size_t found = count_new(parts_of(problem), parts) +
                                count_new({head_dims_of(problem)}, head_dims);
      if (found > best_new) best_new = found, best = &problem;
    }
    if (best == nullptr) return;
    parts.merge(parts_of(*best));
    head_dims.insert(head_dims_of(*best));
    jobs.push_back({&arch, *best, untuned(families, *best, typical_device(arch.name))});
  }
}

/// Adds candidates, always the one with the most values of axes that no job has, until every value
/// that a search of the problems tries is there. Of equals the one with the smallest tiles: its
/// kernel compiles in half the time of large ones.
void add_values(const Family& family, const Arch& arch, std::vector<Job>& jobs) {
  Words known;
  for (const Job& job : jobs) known.merge(values_of(job.candidate.config));
  std::vector<std::pair<Job, Words>> unknown;  // candidates, and what of their values no job has
  for (const Problem& problem : test::problems_on(family, arch)) {
    for (const Candidate& each : candidates(family, problem, typical_device(arch.name)))
      unknown.push_back({{&arch, problem, each, false}, values_of(each.config)});
  }
  std::ranges::stable_sort(unknown, {}, [&](const auto& each) {
    const Problem& problem = each.first.problem;
    const TileShape tile = family.tile_shape(each.first.candidate.config, problem);
    return tile.block_m * tile.block_n * (problem.head_dim + problem.head_dim_v);
  });
  for (;;) {
    for (auto& [job, values] : unknown)
      std::erase_if(values, [&](const std::string& value) { return known.contains(value); });
    std::erase_if(unknown, [](const auto& each) { return each.second.empty(); });
    if (unknown.empty()) return;
    auto& [job, values] = *std::ranges::max_element(
        unknown, {}, [](const auto& each) { return each.second.size(); });
    jobs.push_back(job);
    known.merge(values);
  }
}

std::vector<Job> default_jobs(const Family& family) {
  std::vector<Job> jobs;
  if (family.tier != Tier::kProduct) {
    Words parts;
    add_defaults(family, arch_named(kArchOfOthers), kProblemsOfOthers, parts, jobs);
    return jobs;
  }
  Words parts_elsewhere;
  for (const Arch& arch : archs()) {
    Words parts_here;
    const bool all = has_all_parts(family, arch);
    add_defaults(family, arch, all ? kAllProblems : kProblemsElsewhere,
                 all ? parts_here : parts_elsewhere, jobs);
  }
  return jobs;
}

std::vector<Job> jobs_of(const Family& family) {
  std::vector<Job> jobs = default_jobs(family);
  if (family.tier == Tier::kProduct) add_values(family, arch_named(kArchOfAxes), jobs);
  return jobs;
}

/// Of each of the first problems a config that is accepted from a caller and that no search tries.
std::vector<Job> unsearched_jobs(const Family& family, const DeviceFacts& device) {
  const std::size_t most = family.tier == Tier::kProduct ? kUnsearchedConfigs : 1;
  std::vector<Job> jobs;
  for (const Problem& problem : test::hostile_problems()) {
    for (const Candidate& each : test::unsearched_configs(family, problem, device, 1, kSeed))
      jobs.push_back({&device.arch, problem, each, false});
    if (jobs.size() >= most) break;
  }
  return jobs;
}

// ---- Whether it is good ----

/// "" if the compiled kernel can be launched on the arch, else why not.
std::string complaint(const Job& job, const test::Compiled& cubin) {
  const Arch& arch = *job.arch;
  const Launch launch = job.candidate.family->launch(job.candidate.config, job.problem,
                                                     typical_device(arch.name));
  for (const LaunchStep& step : launch.steps) {
    const int threads = static_cast<int>(step.block.x * step.block.y * step.block.z);
    const int smem_bytes = step.smem_bytes + cubin.smem_static_bytes;
    if (smem_bytes > arch.smem_per_block_bytes)
      return fmt::format("{} bytes of shared memory", smem_bytes);
    // What hides its waits for lengths and pages is many warps on an SM.
    const bool appends = job.problem.op == Op::kAppend;
    if (appends &&
        cubin.registers * AppendShape::kMostThreads * job.candidate.config.get("blocks_per_sm") >
            arch.registers_per_sm)
      return fmt::format("{} registers, too many for as many warps", cubin.registers);
    if (cubin.registers == 0 || blocks_per_sm(arch, cubin.registers, threads, smem_bytes) < 1) {
      return fmt::format("{} registers for {} threads", cubin.registers, threads);
    }
  }
  // Promised for sm_86, sm_89 and sm_90; sm_80 and sm_120 keep it too. The assembler for sm_100
  // spills a few loop constants of kernels that it holds in registers elsewhere. Where warpgroups
  // share registers out, the loading thread may spill in its 24: it is not on the critical path,
  // and a consumer that spilled accumulators would show as a serialized wgmma. A plain grid of
  // head_dim 256 with a soft cap keeps more in memory, before its loop and after it (NVRTC 13.0).
  const bool shares_registers = job.candidate.config.family == "fwd_wgmma_sm90a" ||
                                job.candidate.config.family == "bwd_wgmma_sm90a";
  const bool capped = shares_registers && job.problem.softcap > 0 && job.problem.head_dim == 256;
  const int allowed_bytes = capped ? 64 : arch.sm / 10 == 10 || shares_registers ? 32 : 0;
  if (job.is_default && std::max(cubin.spill_store_bytes, cubin.spill_load_bytes) > allowed_bytes) {
    return fmt::format("spills {} bytes, loads {}", cubin.spill_store_bytes,
                       cubin.spill_load_bytes);
  }
  if (job.is_default && cubin.wgmma_serialized) return "wgmma serialized";
  if (const std::size_t at = cubin.log.find("warning #"); at != cubin.log.npos)
    return cubin.log.substr(at, 200);  // inspect would show it to whoever looks at a kernel
  if (job.candidate.config.family == "fwd_wgmma_sm90a")
    return test::register_fault(job.candidate.config, job.problem, cubin.registers);
  return "";
}

bool known_to_nvrtc(const Arch& arch) {
  const std::vector<int>& known = nvrtc_facts().archs;
  return std::find(known.begin(), known.end(), arch.sm) != known.end();
}

std::string fault_of(const Job& job) {
  const Source source = job.candidate.family->render(job.candidate.config, job.problem);
  if (job.is_default || job.candidate.config.family.ends_with("wgmma_sm90a"))
    return complaint(job, test::compiled(source, *job.arch));
  test::check_cpp(source, *job.arch);
  return "";
}

void expect_all_good(std::vector<Job> jobs) {
  std::erase_if(jobs, [](const Job& job) { return !known_to_nvrtc(*job.arch); });
  const std::vector<std::string> said = test::compile_together(
      jobs.size(), [&](std::size_t i) { return fault_of(jobs[i]); });
  for (std::size_t i = 0; i < jobs.size(); ++i) {
    EXPECT_EQ(said[i], "") << "sm_" << jobs[i].arch->name << ": " << to_string(jobs[i].problem)
                           << "\n  " << to_string(jobs[i].candidate.config);
  }
}

class TemplateCompiles : public testing::TestWithParam<const Family*> {};

TEST_P(TemplateCompiles, DefaultsWithoutSpillsAndOthersAtAll) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const std::vector<Job> jobs = jobs_of(*GetParam());
  ASSERT_GE(jobs.size(), GetParam()->tier == Tier::kProduct ? 10u : 3u);
  expect_all_good(jobs);
}

TEST(TemplateCompileList, HasEveryPartOnAnOldAndANewArchAndEveryHeadDim) {
  for (const Family* family : registry()) {
    if (family->tier != Tier::kProduct) continue;
    const std::vector<Job> jobs = default_jobs(*family);
    Words head_dims;
    for (const Job& job : jobs) head_dims.insert(head_dims_of(job.problem));
    for (const Arch& arch : archs()) {
      Words parts;
      for (const Job& job : jobs) {
        if (job.arch == &arch && job.is_default) parts.merge(parts_of(job.problem));
      }
      for (const Problem& problem : test::problems_on(*family, arch)) {
        EXPECT_TRUE(!has_all_parts(*family, arch) || count_new(parts_of(problem), parts) == 0)
            << family->name << " sm_" << arch.name << ": " << to_string(problem);
        EXPECT_EQ(count_new({head_dims_of(problem)}, head_dims), 0u) << to_string(problem);
      }
    }
  }
}

TEST(LowBits, CompileWithoutSpillsAndWarnings) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Family* const families[] = {find_family("fwd_mma_sm80")};
  std::vector<Job> jobs;
  for (const char* kv : {"k=int8 v=int8 kv_scale=token", "k=int4 v=int4 kv_scale=group64",
                         "k=e4m3 v=e5m2 kv_scale=head", "k=int4 v=int4 kv_scale=token kv_zero",
                         "k=int4 v=int4 kv_scale=group64 kv_zero"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 {} batch=8 num_heads=32:8 seqlen=1:8192 head_dim=128", kv));
    for (const char* name : {"86", "90a"}) {
      const Arch& arch = arch_named(name);
      jobs.push_back({&arch, problem, untuned(families, problem, typical_device(arch.name))});
    }
  }
  expect_all_good(jobs);
}

TEST(Compiled, IsWhatCompileSaysAndAnotherSourceIsAnother) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const auto of = [](std::string text) {
    Source source;
    source.name = "compiled";
    source.text = std::move(text);
    return source;
  };
  const auto source = [&](int registers) {
    return of(fmt::format(
        "extern \"C\" __global__ void __launch_bounds__(64) turned(float* x) {{ float y[{0}]; for "
        "(int i = 0; i < {0}; ++i) y[i] = x[i]; __syncthreads(); for (int i = 0; i < {0}; ++i) "
        "x[{0} - i] = y[i]; }}",
        registers));
  };
  const Arch& arch = arch_named("80");
  for (const int registers : {8, 64}) {
    const Cubin cubin = compile(source(registers), arch);
    for (int times = 0; times < 2; ++times) {
      const test::Compiled found = test::compiled(source(registers), arch);
      EXPECT_EQ(found.registers, cubin.registers);
      EXPECT_EQ(found.spill_store_bytes, cubin.spill_store_bytes);
      EXPECT_EQ(found.log, cubin.log);
      EXPECT_GT(found.code_bytes, 16 * registers);
    }
  }
  EXPECT_NE(test::compiled(source(8), arch).registers, test::compiled(source(64), arch).registers);
  EXPECT_THROW(test::compiled(of("wrong"), arch), Error);
  EXPECT_THROW(test::check_cpp(of("wrong"), arch), Error);
}

TEST(Fp8, ServesNoCacheBesideFewQueriesOf16Bits) {
  for (const char* kv : {"k=int8 v=int8", "k=e4m3 v=e4m3", "v=int4"}) {
    const Problem problem = parse_problem(
        fmt::format("fwd bf16 {} kv_scale=tensor num_heads=16 seqlen=8:2048 head_dim=128", kv));
    EXPECT_TRUE(candidates(*find_family("fwd_wgmma_sm90a"), problem, typical_device("90a")).empty())
        << kv;
  }
}

TEST(Fp8, CompilesWithoutSpillsAndWarnings) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const Family* const families[] = {find_family("fwd_wgmma_sm90a")};
  const Arch& arch = arch_named("90a");
  std::vector<Job> jobs;
  for (const char* words :
       {"seqlen=4096 head_dim=64", "seqlen=4096 head_dim=128 causal kv_scale=head",
        "seqlen=4096 head_dim=128 fast_sums lse", "seqlen=2048 head_dim=256 causal kv_scale=tensor",
        "seqlen=2048 head_dim=192:128 lse", "seqlen=900 head_dim=80 window_left=100",
        "seqlen=4:8192 head_dim=128 kv_scale=head sinks"}) {
    const Problem problem = parse_problem(fmt::format("fwd e4m3 batch=4 num_heads=16:4 {}", words));
    jobs.push_back({&arch, problem, untuned(families, problem, typical_device(arch.name))});
  }
  expect_all_good(jobs);
}

class UnsearchedConfigs : public testing::TestWithParam<const Family*> {};

TEST_P(UnsearchedConfigs, ThatAreAcceptedCompile) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  std::vector<Job> jobs = unsearched_jobs(*GetParam(), typical_device(kArchOfOthers));
  if (jobs.empty()) jobs = unsearched_jobs(*GetParam(), typical_device(kArchOfAxes));
  if (jobs.empty()) GTEST_SKIP() << GetParam()->name << " takes what is searched and no more";
  expect_all_good(jobs);
}

INSTANTIATE_TEST_SUITE_P(Registry, UnsearchedConfigs,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

INSTANTIATE_TEST_SUITE_P(Registry, TemplateCompiles,
                         testing::ValuesIn(registry().begin(), registry().end()),
                         [](const auto& info) { return std::string(info.param->name); });

}  // namespace
}  // namespace attnforge
