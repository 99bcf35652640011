#include "plan/ops/block_lists.h"

#include <fmt/format.h>

#include <memory>
#include <string>
#include <string_view>

#include "attnforge/error.h"
#include "attnforge/printable.h"
#include "generator/user_code/wide_indexes.h"
#include "plan/load_kernel.h"
#include "templates/ops/block_lists/host.h"

namespace attnforge {
namespace {

constexpr auto kAlways = [](const LoadedKernels&) { return true; };

/// `purpose` ("makes lists") is for errors.
std::unique_ptr<LoadedKernels> load_block_kernels(const Source& source, const Launch& launch,
                                                  std::string_view purpose, bool allow_compile,
                                                  DeviceState& state) {
  require_arch(state.facts);
  const auto not_ready = [&] {
    throw Error(ErrorCode::kNotReady,
                fmt::format("the code that {} is not stored in {}, and compiling it is forbidden; "
                            "make the call once where it is allowed",
                            purpose, state.cache.path()));
  };
  return std::make_unique<LoadedKernels>(
      load_code(source, launch, stored_cubin(digest(source), state.facts.arch, "", state.cache),
                allow_compile, source.name, not_ready, state));
}

}  // namespace

const LoadedKernels& block_text_kernels(const Problem& text, const BlockMaskShape& shape,
                                        bool allow_compile, DeviceState& state) {
  // All that of the sizes is compiled in.
  const bool wide = has_wide_indexes(text.mask, CodeText::kMask, text);
  const std::string key = fmt::format("{}:{} {} {}\n{}", shape.block_q, shape.block_kv, wide,
                                      text.args, text.mask);
  return state.block_kernels.find_or_make(key, kAlways, [&] {
    const Launch launch{
        .steps = {block_states_step(text, shape, {}), block_bits_step(text, shape, {}, 1)}};
    return load_block_kernels(block_text_source(text, shape), launch,
                              fmt::format("makes blocks of the mask \"{}\"", printable(text.mask)),
                              allow_compile, state);
  });
}

const LoadedKernels& block_list_kernels(bool allow_compile, DeviceState& state) {
  return state.block_kernels.find_or_make("", kAlways, [&] {
    constexpr BlockMaskShape kAny{};
    const Launch launch{.steps = {count_blocks_step(kAny, {}), begin_rows_step(kAny, {}),
                                  write_rows_step(kAny, {}), mark_columns_step(kAny, {}, {}),
                                  find_bits_step(kAny, {}, {}),
                                  transpose_bits_step(kAny, {}, {}, 0)}};
    return load_block_kernels(block_lists_source(), launch, "makes lists of block masks",
                              allow_compile, state);
  });
}

}  // namespace attnforge
