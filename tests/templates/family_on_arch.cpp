#include "tests/templates/family_on_arch.h"

#include <fmt/format.h>

#include "templates/registry.h"

namespace attnforge::test {

void PrintTo(const FamilyOnArch& c, std::ostream* out) { *out << name_of(c); }

std::vector<FamilyOnArch> families_on_archs() {
  std::vector<FamilyOnArch> all;
  for (const Family* family : registry()) {
    for (const Arch& arch : archs()) all.push_back({family, &arch});
  }
  return all;
}

std::string name_of(const FamilyOnArch& c) {
  return fmt::format("{}_sm{}", c.family->name, c.arch->name);
}

}  // namespace attnforge::test
