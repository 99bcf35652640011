#include "plan/cubins.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "plan/device_state.h"
#include "runtime/compile/compiler.h"
#include "runtime/nvtx.h"

namespace attnforge {

std::optional<Cubin> stored_cubin(const std::string& source_digest, const Arch& arch,
                                  const std::string& nvrtc, Cache& cache) {
  if (!nvrtc.empty()) {
    if (std::optional<Cubin> cubin = cache.get_cubin(source_digest, arch.name, nvrtc)) return cubin;
  }
  return cache.get_cubin(source_digest, arch.name, "");
}

Cubin compile_and_store(const Source& source, const Arch& arch, Cache& cache, const Logger& log) {
  const NvtxRange range("attnforge compile", source.name);
  Cubin cubin = compile(source, arch);
  log.info(fmt::format("compiled {} for sm_{} in {:.0f} ms: {} registers, {} bytes spilled",
                       source.name, arch.name, cubin.compile_ms, cubin.registers,
                       cubin.spill_store_bytes + cubin.spill_load_bytes));
  try {
    cache.put_cubin(cubin, source.text, source.name);
  } catch (const Error& error) {
    log.warning(fmt::format("the code of {} is not stored: {}", source.name, error.what()));
  }
  return cubin;
}

Cubin compile_and_store(const Source& source, DeviceState& state) {
  Cubin cubin = compile_and_store(source, state.facts.arch, state.cache, state.log);
  ++state.compiles;
  return cubin;
}

}  // namespace attnforge
