// machine_code_test.cpp - registers, spills and code size of kernels that win on real GPUs, against
// a list under version control: golden/machine_code.csv. A change of a template or of what is
// generated that costs the dense kernels anything shows here, without a GPU. The list is of one
// NVRTC, which it names; with another there is nothing to compare with.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <vector>

#include "attnforge/error.h"
#include "generator/arch.h"
#include "generator/candidates.h"
#include "runtime/compile/compiler.h"
#include "templates/registry.h"
#include "tests/templates/compile_together.h"

namespace attnforge {
namespace {

constexpr const char* kPath = ATTNFORGE_GOLDEN_DIR "/machine_code.csv";
constexpr double kCodeTolerance = 0.05;
constexpr const char* kRewrite = "ATTNFORGE_UPDATE_GOLDEN=1 ./dev test -R MachineCode";
constexpr const char* kColumns = "arch,problem,config,registers,spill_bytes,code_bytes";

/// A line of the list. The kernel is chosen by hand: a new line may have 0 for all numbers.
struct Kernel {
  std::string arch, problem, config;
  int registers = 0;
  int spill_bytes = 0;  // stores and loads
  int code_bytes = 0;   // of all kernels of the cubin
};

struct List {
  std::string nvrtc;
  std::vector<Kernel> kernels;
};

List read_list() {
  List list;
  std::ifstream file(kPath);
  const std::string kNvrtc = "# NVRTC ";
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(kNvrtc)) list.nvrtc = line.substr(kNvrtc.size());
    if (line.empty() || line[0] == '#' || line == kColumns) continue;
    std::istringstream fields(line);
    std::string registers, spill_bytes, code_bytes;
    Kernel kernel;
    for (std::string* field :
         {&kernel.arch, &kernel.problem, &kernel.config, &registers, &spill_bytes, &code_bytes})
      std::getline(fields, *field, ',');
    kernel.registers = std::atoi(registers.c_str());
    kernel.spill_bytes = std::atoi(spill_bytes.c_str());
    kernel.code_bytes = std::atoi(code_bytes.c_str());
    list.kernels.push_back(kernel);
  }
  return list;
}

void write_list(const std::vector<Kernel>& kernels) {
  std::ofstream file(kPath);
  file << "# Registers, spills and code size of dense kernels that win. " << kRewrite
       << " measures\n# every line anew, also one that was added with 0 in its last columns.\n"
       << "# NVRTC " << nvrtc_facts().version_text() << "\n"
       << kColumns << "\n";
  for (const Kernel& k : kernels)
    file << fmt::format("{},{},{},{},{},{}\n", k.arch, k.problem, k.config, k.registers,
                        k.spill_bytes, k.code_bytes);
}

std::vector<Kernel> measured(const std::vector<Kernel>& list) {
  std::vector<Kernel> now = list;
  const std::vector<std::string> said = test::compile_together(list.size(), [&](std::size_t i) {
    const Config config = parse_config(list[i].config);
    const Family* family = find_family(config.family);
    const Problem problem = parse_problem(list[i].problem);
    const Arch& arch = arch_named(list[i].arch);
    if (family == nullptr) return std::string("no such family");
    if (const std::string reason = rejection(*family, problem, arch); !reason.empty())
      return reason;
    const std::string reason = illegal(*family, config, problem, typical_device(arch.name));
    if (!reason.empty()) return reason;
    const auto cubin = test::compiled(family->render(config, problem), arch);
    now[i].registers = cubin.registers;
    now[i].spill_bytes = cubin.spill_store_bytes + cubin.spill_load_bytes;
    now[i].code_bytes = cubin.code_bytes;
    return std::string();
  });
  for (std::size_t i = 0; i < list.size(); ++i)
    EXPECT_EQ(said[i], "") << list[i].problem << "\n  " << list[i].config;
  return now;
}

TEST(MachineCode, OfWinnersTakesNoMoreThanListed) {
  if (!nvrtc_facts().available) GTEST_SKIP() << nvrtc_facts().problem;
  const List list = read_list();
  ASSERT_GE(list.kernels.size(), 12u) << kPath;
  const bool rewrite = std::getenv("ATTNFORGE_UPDATE_GOLDEN") != nullptr;
  if (!rewrite && nvrtc_facts().version_text() != list.nvrtc) {
    GTEST_SKIP() << kPath << " was made with NVRTC " << list.nvrtc << ", this is NVRTC "
                 << nvrtc_facts().version_text() << "; to make it with this one: " << kRewrite;
  }
  const std::vector<Kernel> now = measured(list.kernels);
  if (HasFailure()) return;
  if (rewrite) {
    write_list(now);
    GTEST_SKIP() << "wrote " << kPath;
  }
  for (std::size_t i = 0; i < now.size(); ++i) {
    const Kernel& was = list.kernels[i];
    SCOPED_TRACE(fmt::format("sm_{}: {}\n  {}\n  if this is intended: {}", was.arch, was.problem,
                             was.config, kRewrite));
    EXPECT_LE(now[i].registers, was.registers) << "registers a thread";
    EXPECT_LE(now[i].spill_bytes, was.spill_bytes) << "bytes of spills";
    EXPECT_NEAR(now[i].code_bytes, was.code_bytes, kCodeTolerance * was.code_bytes)
        << "bytes of machine code";
  }
}

}  // namespace
}  // namespace attnforge
