// supported.cpp - what can be said of a problem without a GPU, and the names of policies.
#include <fmt/format.h>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/candidates.h"
#include "plan/overrides.h"
#include "templates/registry.h"

namespace attnforge {

Support supported(const Problem& problem, const DeviceFacts& device) {
  validate(problem);
  const std::string forced = family_from_environment();
  Support support;
  for (const Family* family : registry()) {
    if (forced.empty() ? family->only_named || family->op != problem.op : family->name != forced)
      continue;
    const std::string reason = rejection(*family, problem, device.arch);
    if (reason.empty()) return {true, std::string(family->name), ""};
    support.reason += fmt::format("{}{}: {}", support.reason.empty() ? "" : "\n", family->name,
                                  reason);
  }
  if (!forced.empty() && support.reason.empty())
    support.reason = fmt::format("ATTNFORGE_FAMILY={} is not a kernel family", forced);
  return support;
}

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kEstimate:
      return "estimate";
    case Policy::kFirstRun:
      return "first_run";
    case Policy::kCachedOnly:
      return "cached_only";
  }
  return "unknown";
}

}  // namespace attnforge
