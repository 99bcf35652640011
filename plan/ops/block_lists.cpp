#include "plan/ops/block_lists.h"

#include <fmt/format.h>

#include <string>

#include "attnforge/printable.h"
#include "generator/user_code/wide_indexes.h"
#include "plan/ops/op_kernels.h"
#include "templates/ops/block_lists/host.h"

namespace attnforge {

const LoadedKernels& block_text_kernels(const Problem& text, const BlockMaskShape& shape,
                                        bool allow_compile, DeviceState& state) {
  // All that of the sizes is compiled in.
  const bool wide = has_wide_indexes(text.mask, CodeText::kMask, text);
  const std::string key = fmt::format("{}:{} {} {}\n{}", shape.block_q, shape.block_kv, wide,
                                      text.args, text.mask);
  return op_kernels(
      key, fmt::format("makes blocks of the mask \"{}\"", printable(text.mask)), allow_compile,
      state, [&] { return block_text_source(text, shape); },
      [&] {
        return Launch{
            .steps = {block_states_step(text, shape, {}), block_bits_step(text, shape, {}, 1)}};
      });
}

const LoadedKernels& block_list_kernels(bool allow_compile, DeviceState& state) {
  return op_kernels("", "makes lists of block masks", allow_compile, state, block_lists_source, [] {
    constexpr BlockMaskShape kAny{};
    return Launch{.steps = {count_blocks_step(kAny, {}), begin_rows_step(kAny, {}),
                            write_rows_step(kAny, {}), mark_columns_step(kAny, {}, {}),
                            find_bits_step(kAny, {}, {}), transpose_bits_step(kAny, {}, {}, 0)}};
  });
}

}  // namespace attnforge
