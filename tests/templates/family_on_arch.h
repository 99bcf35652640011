// family_on_arch.h - a test's parameter: every family of the registry on every arch.
#pragma once

#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "generator/arch.h"
#include "generator/family.h"

namespace attnforge::test {

struct FamilyOnArch {
  const Family* family;
  const Arch* arch;
};
void PrintTo(const FamilyOnArch& c, std::ostream* out);

std::vector<FamilyOnArch> families_on_archs();

/// The list that a family's tests walk through: template_problems(), or fp32_problems() for one
/// that takes nothing else.
std::span<const Problem> problems_of(const Family& family);

/// As a test's name: "fwd_naive_sm90a".
std::string name_of(const FamilyOnArch& c);

}  // namespace attnforge::test
