#include "plan/workspace_bound.h"

#include "attnforge/error.h"
#include "generator/config.h"
#include "templates/registry.h"

namespace attnforge {

std::size_t workspace_bound(Problem largest, const std::string& config_text,
                            const DeviceFacts& device) {
  // The layout only says how attnforge would allocate; it must not bind the two lengths to each
  // other here.
  if (largest.layout == Layout::kPackedQkv) largest.layout = Layout::kBshd;
  validate(largest);
  const Config config = parse_config(config_text);
  const Family* family = find_family(config.family);
  ATTNFORGE_ASSERT(family != nullptr, "the config of a plan is of a family of this build");
  // That a family's workspace grows with batch and lengths is a rule for families
  // (docs/ADDING_A_FAMILY.md) that a test checks.
  return family->launch(config, largest, device).workspace_bytes;
}

}  // namespace attnforge
