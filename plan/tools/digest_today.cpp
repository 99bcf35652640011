// digest_today.cpp - whether a row of a database is of the code of today.
#include "attnforge/error.h"
#include "attnforge/inspect.h"
#include "plan/choice/choice.h"
#include "templates/registry.h"

namespace attnforge {

std::string digest_today(std::string_view problem, std::string_view config) {
  try {
    const Config read = parse_config(config);
    if (find_family(read.family) == nullptr) return "";
    return rendered(read, parse_problem(problem), {}).digest;
  } catch (const Error&) {
    return "";  // of another version, damaged, or stored under what the environment forced
  }
}

}  // namespace attnforge
