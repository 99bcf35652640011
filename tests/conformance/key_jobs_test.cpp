// key_jobs_test.cpp - a job on tiles of K and V that undoes what was done to the inputs: outputs
// have the bits of a kernel without one, twice, with every kind of query tiles, walks and loads.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>

#include "attnforge/error.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/conformance/proof.h"
#include "tests/support/key_jobs.h"

namespace attnforge {
namespace {

using namespace test;

class KeyJobs : public testing::TestWithParam<KeyJobCase> {};

TEST_P(KeyJobs, LeaveTheBitsOfAKernelWithoutOne) {
  const std::string unusable = gpu_problem();
  if (!unusable.empty()) GTEST_SKIP() << unusable;
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Problem problem = parse_problem(GetParam().problem);
  if (const std::string no = rejection(family, problem, gpu_facts().arch); !no.empty())
    GTEST_SKIP() << no;
  ScopedContext context(gpu_context());
  const Config config = config_of(GetParam());
  ASSERT_EQ(illegal(family, config, problem, gpu_facts()), "");
  const HostProblem host = make_host_problem(problem, kConformanceSeed);
  HostProblem negated = host;
  negate_rows(negated);
  GpuProblem gpu(host);

  const Compiled plain = compile_candidate({&family, config}, problem);
  ASSERT_EQ(plain.failure, "");
  HostProblem wanted = after_run(Loaded(plain), gpu, host);
  HostProblem without = after_run(Loaded(plain), gpu, negated);
  negate_rows(without);
  EXPECT_FALSE(without.storages == wanted.storages) << "what the job does matters";

  const Compiled with_job{
      .candidate = {&family, config},
      .launch = family.launch(config, with_jobs(problem), gpu_facts()),
      .cubin = compile(source_with_jobs(family, config, problem), gpu_facts().arch),
      .failure = ""};
  for (int run = 0; run < 2; ++run) {
    HostProblem after = after_run(Loaded(with_job), gpu, negated);
    negate_rows(after);
    EXPECT_TRUE(after.storages == wanted.storages) << "run " << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Of, KeyJobs, testing::ValuesIn(kKeyJobCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace attnforge
