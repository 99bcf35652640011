// key_jobs_compile_test.cpp - NVRTC compiles a job on tiles of K and V with every kind of query
// tiles, walks and loads, without spills. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <iterator>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/support/key_jobs.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

std::string fault_of(const test::KeyJobCase& c) {
  const Problem problem = parse_problem(c.problem);
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Config config = test::config_of(c);
  if (std::string wrong = illegal(family, config, problem, device); !wrong.empty()) return wrong;
  const Cubin cubin = compile(test::source_with_jobs(family, config, problem), device.arch);
  const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
  return spills == 0 ? "" : fmt::format("{} bytes of spills", spills);
}

TEST(KeyJobs, CompileWithoutSpillsInEachCombination) {
  const std::vector<std::string> faults = test::compile_together(
      std::size(test::kKeyJobCases),
      [&](std::size_t i) { return fault_of(test::kKeyJobCases[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << test::kKeyJobCases[i].name;
}

}  // namespace
}  // namespace attnforge
