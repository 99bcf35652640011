// key_jobs_compile_test.cpp - NVRTC compiles a job on tiles of K and V with every kind of query
// tiles, walks and loads: the C++ of each combination, and to machine code without spills so many
// that each kind is among them. Needs NVRTC, but neither a GPU nor a driver.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/shape.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/support/key_jobs.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

using Words = std::set<std::string>;

/// What the kernel of a case is made of: "grid=2", "head_dim = 64". Of numbers that launches alone
/// read, whether they are more than 1.
Words kinds_of(const test::KeyJobCase& c) {
  Words kinds;
  for (const auto& [name, value] : test::config_of(c).fields) {
    const bool of_launch = name == "pack_gqa" || name == "num_splits";
    kinds.insert(fmt::format("{}={}", name, of_launch ? value > 1 : value));
  }
  std::istringstream fields(initializer(shape_of(parse_problem(c.problem))));
  for (std::string field; std::getline(fields, field, ',');) kinds.insert(field);
  return kinds;
}

/// Of each case whether machine code is made of it: always of the one with the most kinds that no
/// chosen one has, until there is none.
std::vector<bool> chosen_cases() {
  std::vector<Words> missing;
  for (const test::KeyJobCase& c : test::kKeyJobCases) missing.push_back(kinds_of(c));
  std::vector<bool> chosen(missing.size());
  for (;;) {
    const auto most = std::ranges::max_element(missing, {}, &Words::size);
    if (most->empty()) return chosen;
    chosen[static_cast<std::size_t>(most - missing.begin())] = true;
    const Words found = *most;
    for (Words& words : missing)
      std::erase_if(words, [&](const std::string& word) { return found.contains(word); });
  }
}

std::string fault_of(const test::KeyJobCase& c, bool to_machine_code) {
  const Problem problem = parse_problem(c.problem);
  const DeviceFacts& device = typical_device("90a");
  const Family& family = *find_family("fwd_wgmma_sm90a");
  const Config config = test::config_of(c);
  if (std::string wrong = illegal(family, config, problem, device); !wrong.empty()) return wrong;
  const Source source = test::source_with_jobs(family, config, problem);
  if (!to_machine_code) {
    test::check_cpp(source, device.arch);
    return "";
  }
  const auto cubin = test::compiled(source, device.arch);
  const int spills = cubin.spill_store_bytes + cubin.spill_load_bytes;
  return spills == 0 ? "" : fmt::format("{} bytes of spills", spills);
}

TEST(KeyJobs, CompileInEachCombinationAndOfEachKindWithoutSpills) {
  const std::vector<bool> chosen = chosen_cases();
  EXPECT_GE(std::ranges::count(chosen, true), 6);
  const std::vector<std::string> faults = test::compile_together(
      chosen.size(), [&](std::size_t i) { return fault_of(test::kKeyJobCases[i], chosen[i]); });
  for (std::size_t i = 0; i < faults.size(); ++i)
    EXPECT_EQ(faults[i], "") << test::kKeyJobCases[i].name;
}

}  // namespace
}  // namespace attnforge
