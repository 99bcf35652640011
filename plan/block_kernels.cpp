#include "plan/block_kernels.h"

#include <fmt/format.h>

#include <memory>
#include <optional>
#include <string>

#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "plan/context_scope.h"
#include "plan/cubins.h"
#include "templates/host/block_lists.h"

namespace attnforge {
namespace {

/// The kernels that `launch` calls. `what` they are for says an error.
std::unique_ptr<LoadedKernels> load(const Source& source, const Launch& launch,
                                    const std::string& what, bool allow_compile,
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
                fmt::format("the code that makes {} is not stored in {}, and compiling it is "
                            "forbidden; make the mask once where it is allowed",
                            what, state.cache.path()));
  }
  const Cubin cubin = compile_and_store(source, arch, state.cache, state.log);
  return std::make_unique<LoadedKernels>(cubin.bytes, source, launch);
}

constexpr auto kAlways = [](const LoadedKernels&) { return true; };

}  // namespace

const LoadedKernels& block_text_kernels(const Problem& text, const BlockMaskShape& shape,
                                        bool allow_compile, DeviceState& state) {
  const std::string key = fmt::format("{}:{} {}\n{}", shape.block_q, shape.block_kv, text.args,
                                      text.mask);
  return state.block_kernels.find_or_make(key, kAlways, [&] {
    const Launch launch{
        .steps = {block_states_step(text, shape, {}), block_bits_step(text, shape, {}, 1)}};
    return load(block_text_source(text, shape), launch,
                fmt::format("blocks of the mask \"{}\"", printable(text.mask)), allow_compile,
                state);
  });
}

const LoadedKernels& block_list_kernels(bool allow_compile, DeviceState& state) {
  return state.block_kernels.find_or_make("", kAlways, [&] {
    constexpr BlockMaskShape kAny{};
    const Launch launch{.steps = {count_blocks_step(kAny, {}), begin_rows_step(kAny, {}),
                                  write_rows_step(kAny, {}), mark_columns_step(kAny, {}, {}),
                                  find_bits_step(kAny, {}, {}),
                                  transpose_bits_step(kAny, {}, {}, 0)}};
    return load(block_lists_source(), launch, "lists of block masks", allow_compile, state);
  });
}

}  // namespace attnforge
