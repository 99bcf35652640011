// options.h - what the environment says of the conformance tests.
// ATTNFORGE_CONFORMANCE_CONFIGS=n tries n random configs (2), ATTNFORGE_CONFORMANCE_FAMILY=name
// only that family, with no test failing for a problem that it does not serve.
// ATTNFORGE_CONFORMANCE_TEXTS=n draws n texts (12) from ATTNFORGE_CONFORMANCE_SEED=x on (1).
#pragma once

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "templates/registry.h"

namespace attnforge::test {

inline int number_of_environment(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : std::max(0, std::atoi(text));
}
inline int random_configs() { return number_of_environment("ATTNFORGE_CONFORMANCE_CONFIGS", 2); }

/// "": all families.
inline std::string only_family() {
  const char* text = std::getenv("ATTNFORGE_CONFORMANCE_FAMILY");
  return text == nullptr ? "" : text;
}

/// Those of an op that the environment lets be tested.
inline std::vector<const Family*> families_of(Op op) {
  std::vector<const Family*> families;
  for (const Family* family : registry()) {
    if (family->op == op && (only_family().empty() || family->name == only_family()))
      families.push_back(family);
  }
  return families;
}

/// All of an op, for tests of one family each.
inline std::vector<const Family*> all_families_of(Op op) {
  std::vector<const Family*> families;
  for (const Family* family : registry()) {
    if (family->op == op) families.push_back(family);
  }
  return families;
}

}  // namespace attnforge::test
