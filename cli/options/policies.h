// policies.h - how a plan is chosen, as options of a verb.
#pragma once

#include <string>

#include "attnforge/plan.h"
#include "cli/options/command_line.h"

namespace attnforge::cli {

/// --policy, --time-limit, --family, --config.
void add_policy_options(Command& verb, std::string& policy, double& time_limit_s,
                        std::string& family, std::string& config);

/// Throws Error(kInvalidArgument) for an unknown policy.
PlanOptions plan_options(const std::string& policy, double time_limit_s, const std::string& family,
                         const std::string& config);

}  // namespace attnforge::cli
