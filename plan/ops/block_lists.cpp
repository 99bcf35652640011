#include "plan/ops/block_lists.h"

#include <fmt/format.h>

#include <string>

#include "attnforge/printable.h"
#include "generator/user_code/wide_indexes.h"
#include "plan/ops/kernels.h"
#include "templates/ops/block_lists/host.h"

namespace attnforge {
namespace {

constexpr auto kAlways = [](const LoadedKernels&) { return true; };

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
    return load_side_kernels(block_text_source(text, shape), launch,
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
    return load_side_kernels(block_lists_source(), launch, "makes lists of block masks",
                             allow_compile, state);
  });
}

}  // namespace attnforge
