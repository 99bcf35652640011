#include "plan/ops/op_kernels.h"

#include <fmt/format.h>

#include <memory>

#include "attnforge/error.h"
#include "plan/load_kernel.h"

namespace attnforge {

const LoadedKernels& op_kernels(const std::string& key, std::string_view purpose,
                                bool allow_compile, DeviceState& state,
                                const std::function<Source()>& source,
                                const std::function<Launch()>& launch) {
  const auto always = [](const LoadedKernels&) { return true; };
  return state.op_kernels.find_or_make(key, always, [&] {
    require_arch(state.facts);
    const Source made = source();
    const auto not_ready = [&] {
      throw Error(
          ErrorCode::kNotReady,
          fmt::format("the code that {} is not stored in {}, and compiling it is forbidden; "
                      "make the call once where it is allowed",
                      purpose, state.cache.path()));
    };
    return std::make_unique<LoadedKernels>(
        load_code(made, launch(), stored_cubin(digest(made), state.facts.arch, "", state.cache),
                  allow_compile, made.name, not_ready, state));
  });
}

}  // namespace attnforge
