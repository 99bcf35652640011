#include "cli/options/policies.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "cli/options/command_line.h"
#include "cli/options/option_values.h"
#include "cli/verbs/verbs.h"

namespace attnforge::cli {
namespace {
constexpr Policy kPolicies[] = {Policy::kEstimate, Policy::kFirstRun, Policy::kCachedOnly};
}

void add_cache_option(Command& verb, std::string& path) {
  verb.add_option("--cache", path,
                  "Database file; default $ATTNFORGE_CACHE, else ~/.cache/attnforge/attnforge.db")
      ->type_name("PATH");
}

void add_policy_options(Command& verb, std::string& policy, double& time_limit_s,
                        std::string& family, std::string& config) {
  std::vector<std::string> names;
  for (Policy known : kPolicies) names.emplace_back(to_string(known));
  verb.add_option("--policy", policy,
                  "Without a winner in the database: take the model's choice, tune, or refuse")
      ->check(one_of(names));
  verb.add_option("--time-limit", time_limit_s, "Of the tuning by --policy first_run")
      ->type_name("SECONDS")
      ->transform(seconds());
  verb.add_option("--family", family, "Only this kernel family (see attnforge list)")
      ->type_name("NAME");
  verb.add_option("--config", config,
                  "Exactly this config, as tune --full and inspect --full print it")
      ->type_name("TEXT");
}

PlanOptions plan_options(const std::string& policy, double time_limit_s, const std::string& family,
                         const std::string& config) {
  PlanOptions options;
  options.time_limit_s = time_limit_s;
  options.family = family;
  options.config = config;
  for (Policy known : kPolicies) {
    if (policy != to_string(known)) continue;
    options.policy = known;
    return options;
  }
  throw Error(ErrorCode::kInvalidArgument, fmt::format("unknown policy \"{}\"", policy));
}

}  // namespace attnforge::cli
