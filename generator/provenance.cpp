#include "attnforge/provenance.h"

#include "generator/text/enum_names.h"

namespace attnforge {

std::string_view to_string(Provenance provenance) {
  constexpr std::string_view kNames[] = {"measured",     "compatible", "stale", "near_device",
                                         "near_problem", "estimated",  "forced"};
  return name_in(kNames, provenance);
}

std::string_view to_string(Layer layer) {
  constexpr std::string_view kNames[] = {"none", "database", "site", "shipped"};
  return name_in(kNames, layer);
}

}  // namespace attnforge
