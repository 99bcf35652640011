#include "tests/templates/family_on_arch.h"

#include <fmt/format.h>

#include <algorithm>

#include "generator/candidates.h"
#include "templates/registry.h"
#include "tests/templates/problems.h"

namespace attnforge::test {

void PrintTo(const FamilyOnArch& c, std::ostream* out) { *out << name_of(c); }

std::vector<FamilyOnArch> families_on_archs() {
  std::vector<FamilyOnArch> all;
  for (const Family* family : registry()) {
    for (const Arch& arch : archs()) all.push_back({family, &arch});
  }
  return all;
}

std::span<const Problem> problems_of(const Family& family) {
  const auto serves = [&](const Problem& problem) {
    return std::any_of(archs().begin(), archs().end(),
                       [&](const Arch& arch) { return rejection(family, problem, arch).empty(); });
  };
  const bool only_fp32 = !serves(template_problems()[0]) && serves(fp32_problems()[0]);
  return only_fp32 ? fp32_problems() : template_problems();
}

std::string name_of(const FamilyOnArch& c) {
  return fmt::format("{}_sm{}", c.family->name, c.arch->name);
}

}  // namespace attnforge::test
