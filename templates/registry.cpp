// registry.cpp - the only file that names every kernel family. A new one: a folder, a line here.
#include "templates/registry.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "templates/parts/rope/host.h"

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
extern const Family append_kv_family;

std::span<const Family* const> registry() {
  // Families that know nothing of ropes, after a step that rotates q and k.
  static const Family rotated[] = {rotated_family<fwd_wgmma_sm90a>(),
                                   rotated_family<fwd_mma_sm80>(),
                                   rotated_family<fwd_regtile_f32>(), rotated_family<fwd_wmma>()};
  static const Family* const families[] = {
      // Tier by tier, the best of each first.
      &rotated[0],          &rotated[1],       &bwd_wgmma_sm90a, &bwd_mma_sm80,  &rotated[2],
      &merge_states_family, &append_kv_family, &rotated[3],      &fwd_flash_vec, &fwd_flash_scalar,
      &fwd_materialized,    &fwd_naive,        &bwd_naive,
  };
  return families;
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
