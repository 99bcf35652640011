// registry.cpp - the only file that names every kernel family. A new one: a folder, a line here.
#include "templates/registry.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "templates/host/step_before.h"
#include "templates/parts/rope/host.h"
#include "templates/parts/widening/host.h"

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
  // A family that knows nothing of caches of fewer bits, after a step that widens k and v.
  static const Family widened = with_step_before<fwd_wgmma_sm90a, kWidening>();
  // Families that know nothing of ropes, after a step that rotates q and k.
  static const Family rotated[] = {
      with_step_before<widened, kRotation>(), with_step_before<fwd_mma_sm80, kRotation>(),
      with_step_before<fwd_regtile_f32, kRotation>(), with_step_before<fwd_wmma, kRotation>()};
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
