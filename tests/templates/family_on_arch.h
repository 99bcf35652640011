// family_on_arch.h - a test's parameter: every family of the registry on every arch.
#pragma once

#include <ostream>
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

/// As a test's name: "fwd_naive_sm90a".
std::string name_of(const FamilyOnArch& c);

}  // namespace attnforge::test
