#include "plan/choice/same_code.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "plan/cubins.h"
#include "runtime/compile/same_machine_code.h"

namespace attnforge {
namespace {

std::optional<Cubin> code_of_today(const Rendered& rendered, const std::string& nvrtc,
                                   bool may_compile, DeviceState& state) {
  const Arch& arch = state.facts.arch;
  std::optional<Cubin> stored = stored_cubin(rendered.digest, arch, nvrtc, state.cache);
  if (stored || !may_compile) return stored;
  return compile_and_store(rendered.source, state);
}

}  // namespace

void recognise(Choice& choice, bool may_compile, DeviceState& state) {
  if (!choice.stale || !choice.rendered) return;
  Try won = *choice.stale;
  try {
    const std::optional<Cubin> then = state.cache.get_cubin(won.digest, state.facts.arch.name,
                                                            won.nvrtc);
    if (!then) return;
    std::optional<Cubin> now = code_of_today(*choice.rendered, won.nvrtc, may_compile, state);
    if (!now) return;
    const bool same = same_machine_code(now->bytes, then->bytes);
    choice.cubin = std::move(now);
    if (!same) return;
  } catch (const Error& error) {
    state.log.debug(
        fmt::format("whether \"{}\" still has the code that was measured is not known: {}",
                    won.config, error.what()));
    return;
  }
  choice.provenance = Provenance::kMeasured;
  choice.measured_us = won.measurement.time_us;
  choice.why = "it was measured; its source was changed since, its machine code was not";
  won.config = to_string(choice.config);  // without words that it may have carried then
  won.digest = choice.rendered->digest;
  choice.stale.reset();
  try {
    state.cache.put({won});
  } catch (const Error& error) {
    state.log.warning(fmt::format("that \"{}\" has the code that was measured is not stored: {}",
                                  won.config, error.what()));
  }
}

}  // namespace attnforge
