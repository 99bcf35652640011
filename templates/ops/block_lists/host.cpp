#include "templates/ops/block_lists/host.h"

#include <fmt/format.h>

#include <string>
#include <string_view>
#include <utility>

#include "generator/user_code/user_code.h"
#include "templates/embedded.h"
#include "templates/host/argument.h"
#include "templates/host/fwd_params.h"
#include "templates/host/part.h"
#include "templates/host/tile_order.h"
#include "templates/ops/block_lists/params.h"
#include "templates/parts/user_code/host.h"

namespace attnforge {
namespace {

constexpr int kBlockThreads = 256, kBeginThreads = 1024;
constexpr std::int64_t kBlockWarps = kBlockThreads / 32;

std::string states_kernel(const Problem& text) { return "block_states" + code_suffix(text); }
std::string bits_kernel(const Problem& text) { return "block_bits" + code_suffix(text); }

LaunchStep step(std::string kernel, std::int64_t blocks, int threads = kBlockThreads) {
  return step_of(std::move(kernel), threads, 0, blocks);
}
std::int64_t blocks_of_warps(std::int64_t warps) { return (warps + kBlockWarps - 1) / kBlockWarps; }

std::string header_line(std::string_view header) {
  return fmt::format("#include \"{}\"\n", header);
}

std::string entry_point(std::string_view symbol, std::string_view params, int threads,
                        std::string_view function) {
  return fmt::format(
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ {} p) {{\n"
      "  {}(p);\n"
      "}}\n",
      threads, symbol, params, function);
}

Source source_of(std::string name, std::string entry) {
  Source source;
  source.name = std::move(name);
  source.entry = std::move(entry);
  flatten(source, embedded_headers());
  return source;
}

// The text's arguments are all that these kernels have in addition to their own.
std::string text_params(const Problem& text) { return with_code_params(text, "BlockTextParams"); }
std::size_t text_params_bytes(const Problem& text) {
  static_assert(alignof(BlockTextParams) <= kPartAlignment);
  return (sizeof(BlockTextParams) + kPartAlignment - 1) / kPartAlignment * kPartAlignment +
         code_params_bytes(text);
}

LaunchStep with_text_argument(LaunchStep step, const Problem& text, const BlockMaskShape& shape,
                              const BlockListMemory& memory) {
  Argument argument = Argument::of_size(step, text_params_bytes(text));
  argument.fwd(text).value(memory.states, memory.row_begin, memory.columns, memory.bit_blocks);
  argument.value(memory.bits, static_cast<int>(shape.heads), static_cast<int>(shape.q_blocks()),
                 static_cast<int>(shape.kv_blocks()), static_cast<int>(shape.rows()));
  add_code_params(argument.end_of_base<BlockTextParams>(), text);
  argument.done();
  return step;
}

template <class Params>
LaunchStep with_argument(LaunchStep step, const Params& params) {
  Argument::of<Params>(step).value(params).done();
  return step;
}

BlockListsParams lists_params(const BlockMaskShape& shape, const BlockListMemory& memory) {
  return {.states = memory.states,
          .row_begin = memory.row_begin,
          .partial_begin = memory.partial_begin,
          .columns = memory.columns,
          .bit_blocks = memory.bit_blocks,
          .kv_blocks = static_cast<int>(shape.kv_blocks()),
          .rows = static_cast<int>(shape.rows())};
}

TransposedListsParams transposed_params(const BlockMaskShape& shape, const BlockListMemory& from,
                                        const BlockListMemory& to, std::int64_t blocks_of_bits) {
  return {.row_begin = from.row_begin,
          .columns = from.columns,
          .bit_blocks = from.bit_blocks,
          .bits = from.bits,
          .states = to.states,
          .column_begin = to.row_begin,
          .rows = to.columns,
          .bit_blocks_of_columns = to.bit_blocks,
          .bits_of_columns = to.bits,
          .masks = static_cast<int>(shape.batch * shape.heads),
          .q_blocks = static_cast<int>(shape.q_blocks()),
          .kv_blocks = static_cast<int>(shape.kv_blocks()),
          .block_q = shape.block_q,
          .block_kv = shape.block_kv,
          .blocks_of_bits = static_cast<int>(blocks_of_bits)};
}

}  // namespace

Problem mask_text_alone(const Problem& problem) {
  Problem text;
  text.batch = problem.batch;
  text.num_heads_q = problem.num_heads_q;
  text.num_heads_kv = problem.num_heads_kv;
  text.seqlen_q = problem.seqlen_q;
  text.seqlen_kv = problem.seqlen_kv;
  text.head_dim = problem.head_dim;
  text.head_dim_v = problem.head_dim_v;
  text.mask = problem.mask;
  text.args = problem.args;
  return text;
}

Source block_text_source(const Problem& text, const BlockMaskShape& shape) {
  const std::string params = text_params(text);
  const std::string type = fmt::format("BlocksOfText<UserRule<UserCode>, {}, {}>", shape.block_q,
                                       shape.block_kv);
  std::string entry = "// generated: the blocks of a mask's text\n" +
                      header_line("ops/block_lists/text.cuh");
  entry += header_line("parts/user_code/code.cuh") + header_line("parts/user_code/mask.cuh");
  // The whole text: what is a window to other kernels is blocks too.
  entry += struct_of_code(text, text.mask);
  entry += fmt::format("using namespace attnforge;\nstatic_assert(sizeof({}) == {});\n", params,
                       text_params_bytes(text));
  entry += entry_point(states_kernel(text), params, kBlockThreads, type + "::write_states");
  entry += entry_point(bits_kernel(text), params, kBlockThreads, type + "::write_bits");
  return source_of(states_kernel(text), std::move(entry));
}

LaunchStep block_states_step(const Problem& text, const BlockMaskShape& shape,
                             const BlockListMemory& memory) {
  return with_text_argument(
      step(states_kernel(text), blocks_of_warps(shape.rows() * shape.kv_blocks())), text, shape,
      memory);
}

LaunchStep block_bits_step(const Problem& text, const BlockMaskShape& shape,
                           const BlockListMemory& memory, std::int64_t entries) {
  return with_text_argument(step(bits_kernel(text), entries), text, shape, memory);
}

Source block_lists_source() {
  std::string entry = "// generated: lists of block masks\n" +
                      header_line("ops/block_lists/lists.cuh") + "using namespace attnforge;\n";
  const std::string lists = "BlockListsParams", transposed = "TransposedListsParams";
  entry += fmt::format("static_assert(sizeof({}) == {} && sizeof({}) == {});\n", lists,
                       sizeof(BlockListsParams), transposed, sizeof(TransposedListsParams));
  entry += entry_point("count_blocks", lists, kBlockThreads, "BlockLists::count");
  entry += entry_point("begin_rows", lists, kBeginThreads, "BlockLists::begin");
  entry += entry_point("write_rows", lists, kBlockThreads, "BlockLists::write");
  entry += entry_point("mark_columns", transposed, kBlockThreads, "TransposedLists::mark");
  entry += entry_point("find_bits", transposed, kBlockThreads, "TransposedLists::find_bits");
  entry += entry_point("transpose_bits", transposed, kBlockThreads,
                       "TransposedLists::transpose_bits");
  return source_of("block_lists", std::move(entry));
}

LaunchStep count_blocks_step(const BlockMaskShape& shape, const BlockListMemory& memory) {
  return with_argument(step("count_blocks", blocks_of_warps(shape.rows())),
                       lists_params(shape, memory));
}
LaunchStep begin_rows_step(const BlockMaskShape& shape, const BlockListMemory& memory) {
  return with_argument(step("begin_rows", 1, kBeginThreads), lists_params(shape, memory));
}
LaunchStep write_rows_step(const BlockMaskShape& shape, const BlockListMemory& memory) {
  return with_argument(step("write_rows", blocks_of_warps(shape.rows())),
                       lists_params(shape, memory));
}

LaunchStep mark_columns_step(const BlockMaskShape& shape, const BlockListMemory& from,
                             const BlockListMemory& to) {
  return with_argument(step("mark_columns", blocks_of_warps(shape.rows())),
                       transposed_params(shape, from, to, 0));
}
LaunchStep find_bits_step(const BlockMaskShape& shape, const BlockListMemory& from,
                          const BlockListMemory& to) {
  return with_argument(
      step("find_bits", blocks_of_warps(shape.batch * shape.heads * shape.kv_blocks())),
      transposed_params(shape, from, to, 0));
}
LaunchStep transpose_bits_step(const BlockMaskShape& shape, const BlockListMemory& from,
                               const BlockListMemory& to, std::int64_t blocks_of_bits) {
  const std::int64_t tiles = blocks_of_bits * ((shape.block_q + 31) / 32) * shape.words_per_row();
  return with_argument(step("transpose_bits", blocks_of_warps(tiles)),
                       transposed_params(shape, from, to, blocks_of_bits));
}

}  // namespace attnforge
