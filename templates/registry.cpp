// registry.cpp - the only file that names every kernel family. A new one is a folder and a line
// here.
#include "templates/registry.h"

#include <fmt/format.h>

#include "attnforge/error.h"

namespace attnforge {

extern const Family fwd_mma_sm80;
extern const Family fwd_wgmma_sm90a;
extern const Family fwd_wmma;
extern const Family fwd_regtile_f32;
extern const Family fwd_flash_vec;
extern const Family fwd_flash_scalar;
extern const Family fwd_materialized;
extern const Family fwd_naive;
extern const Family bwd_wgmma_sm90a;
extern const Family bwd_mma_sm80;
extern const Family bwd_naive;
extern const Family merge_states_family;

std::span<const Family* const> registry() {
  static constexpr const Family* kFamilies[] = {
      // Tier by tier, the best of each first.
      &fwd_wgmma_sm90a,  &fwd_mma_sm80,        &bwd_wgmma_sm90a, &bwd_mma_sm80,
      &fwd_regtile_f32,  &merge_states_family, &fwd_wmma,        &fwd_flash_vec,
      &fwd_flash_scalar, &fwd_materialized,    &fwd_naive,       &bwd_naive,
  };
  return kFamilies;
}

const Family* find_family(std::string_view name) {
  for (const Family* family : registry()) {
    if (family->name == name) return family;
  }
  return nullptr;
}

std::string describe(const Config& config) {
  const Family* family = find_family(config.family);
  if (family == nullptr || family->describe == nullptr) return to_string(config);
  try {
    return fmt::format("{} {}", config.family, family->describe(config));
  } catch (const Error&) {  // of another version, or made up
    return to_string(config);
  }
}

}  // namespace attnforge
