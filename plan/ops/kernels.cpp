#include "plan/ops/kernels.h"

#include <fmt/format.h>

#include <optional>

#include "attnforge/error.h"
#include "plan/context_scope.h"
#include "plan/cubins.h"

namespace attnforge {

std::unique_ptr<LoadedKernels> load_side_kernels(const Source& source, const Launch& launch,
                                                 std::string_view purpose, bool allow_compile,
                                                 DeviceState& state) {
  const Arch& arch = state.facts.arch;
  if (arch.name.empty()) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{} has compute capability {}.{}, which attnforge has no kernels for",
                            state.facts.name, arch.sm / 10, arch.sm % 10));
  }
  const ContextScope scope(state.context);
  if (const std::optional<Cubin> stored = stored_cubin(digest(source), arch, "", state.cache)) {
    try {
      return std::make_unique<LoadedKernels>(stored->bytes, source, launch);
    } catch (const Error& error) {
      if (!allow_compile) throw;
      state.log.warning(fmt::format("stored code of {} does not load and is compiled again: {}",
                                    source.name, error.what()));
    }
  }
  if (!allow_compile) {
    throw Error(ErrorCode::kNotReady,
                fmt::format("the code that {} is not stored in {}, and compiling it is forbidden; "
                            "make the call once where it is allowed",
                            purpose, state.cache.path()));
  }
  const Cubin cubin = compile_and_store(source, state);
  return std::make_unique<LoadedKernels>(cubin.bytes, source, launch);
}

}  // namespace attnforge
