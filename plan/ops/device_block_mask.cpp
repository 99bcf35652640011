#include "attnforge/device_block_mask.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "generator/user_code/code_operands.h"
#include "generator/user_code/user_code.h"
#include "plan/context_scope.h"
#include "plan/device_state.h"
#include "plan/ops/block_lists.h"
#include "runtime/bind_arguments.h"
#include "runtime/memory.h"
#include "templates/ops/block_lists/host.h"

namespace attnforge {
namespace {

/// What makes a mask: launches on its stream, in the context of its Device.
class Maker {
 public:
  Maker(Device& device, const DeviceMaskOptions& options)
      : device_(device),
        state_(state_of(device)),
        options_(options),
        scope_(state_.context),
        stream_(static_cast<CUstream>(options.stream)) {}

  /// Runs a step on lists that all have a block at least.
  void run(const LoadedKernels& kernels, LaunchStep step, const std::uint64_t* words = nullptr) {
    Tensors tensors;
    tensors.code_arguments = words;
    bind_arguments(step.args, {}, tensors, {}, step.params);
    kernels.at(step.kernel).launch(step, step.params, stream_);
  }
  void run_lists(LaunchStep step) {
    run(block_list_kernels(options_.allow_compile, state_), std::move(step));
  }
  const LoadedKernels& kernels_of(const Problem& text, const BlockMaskShape& shape) {
    return block_text_kernels(text, shape, options_.allow_compile, state_);
  }

  DeviceBuffer allocate(std::int64_t bytes) {
    return DeviceBuffer(device_, static_cast<std::size_t>(bytes));
  }
  DeviceBuffer zeros(std::int64_t bytes) {
    DeviceBuffer buffer = allocate(bytes);
    if (bytes == 0) return buffer;
    check(driver().cuMemsetD8Async(reinterpret_cast<CUdeviceptr>(buffer.data()), 0,
                                   buffer.size_bytes(), stream_),
          "clear {} bytes", bytes);
    return buffer;
  }
  int last_of(const DeviceBuffer& numbers) {
    int value = 0;
    const std::size_t end = numbers.size_bytes();
    check(driver().cuMemcpyDtoHAsync(
              &value, reinterpret_cast<CUdeviceptr>(numbers.data()) + end - sizeof(value),
              sizeof(value), stream_),
          "copy a sum from the GPU");
    wait();
    return value;
  }
  void wait() { check(driver().cuStreamSynchronize(stream_), "wait for a block mask"); }

 private:
  Device& device_;
  DeviceState& state_;
  const DeviceMaskOptions& options_;
  const ContextScope scope_;
  const CUstream stream_;
};

template <class Value>
Value* of(const DeviceBuffer& buffer) {
  return static_cast<Value*>(buffer.data());
}

BlockListMemory memory_of(const DeviceBlockMask& mask, const DeviceBuffer& states = {}) {
  return {.states = of<std::uint8_t>(states),
          .row_begin = of<int>(mask.row_begin),
          .columns = of<int>(mask.columns),
          .bit_blocks = of<int>(mask.bit_blocks),
          .bits = of<std::uint32_t>(mask.bits)};
}

std::int64_t cells_of(const BlockMaskShape& shape) {
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  const double cells = static_cast<double>(shape.rows()) * static_cast<double>(shape.kv_blocks());
  if (cells <= static_cast<double>(kMost)) return shape.rows() * shape.kv_blocks();
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("a block mask of {} masks of {}x{} blocks is more than the {} blocks that "
                  "are made on a GPU; take larger blocks than {}x{}",
                  shape.batch * shape.heads, shape.q_blocks(), shape.kv_blocks(), kMost,
                  shape.block_q, shape.block_kv));
}

constexpr std::int64_t kNumber = sizeof(int);

/// The lists of states; memory for bits, which the caller writes, where `with_bits`.
DeviceBlockMask listed(Maker& maker, const BlockMaskShape& shape, const DeviceBuffer& states,
                       bool with_bits) {
  DeviceBlockMask mask{shape, {}, {}, {}, {}};
  mask.row_begin = maker.zeros((shape.rows() + 1) * kNumber);
  const DeviceBuffer partial_begin = maker.zeros((shape.rows() + 1) * kNumber);
  BlockListMemory memory = memory_of(mask, states);
  memory.partial_begin = of<int>(partial_begin);
  std::int64_t entries = 0;
  if (cells_of(shape) > 0) {
    maker.run_lists(count_blocks_step(shape, memory));
    maker.run_lists(begin_rows_step(shape, memory));
    entries = maker.last_of(mask.row_begin);
    mask.partial = maker.last_of(partial_begin);
    mask.full = entries - mask.partial;
  }
  mask.columns = maker.allocate(std::max<std::int64_t>(1, entries) * kNumber);
  if (with_bits) {
    mask.blocks_of_bits = mask.partial;
    mask.bits = maker.allocate(std::max<std::int64_t>(1, mask.partial) * shape.words_per_block() *
                               kNumber);
    mask.bit_blocks = maker.allocate(std::max<std::int64_t>(1, entries) * kNumber);
  }
  if (entries > 0) {
    memory.columns = of<int>(mask.columns);
    memory.bit_blocks = of<int>(mask.bit_blocks);
    maker.run_lists(write_rows_step(shape, memory));
  }
  maker.wait();  // partial_begin and states are freed
  return mask;
}

DeviceBlockMask made_of_text(Maker& maker, const Problem& text, const BlockMaskShape& shape,
                             bool with_bits, const std::uint64_t* words) {
  const DeviceBuffer states = maker.allocate(cells_of(shape));
  const LoadedKernels& kernels = maker.kernels_of(text, shape);
  if (states.size_bytes() > 0)
    maker.run(kernels, block_states_step(text, shape, {.states = of<std::uint8_t>(states)}), words);
  DeviceBlockMask mask = listed(maker, shape, states, with_bits);
  if (with_bits && mask.partial > 0) {
    maker.run(kernels, block_bits_step(text, shape, memory_of(mask), mask.full + mask.partial),
              words);
    maker.wait();
  }
  return mask;
}

[[noreturn]] void refuse_mask(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, message);
}

void check_text(const Problem& problem) {
  validate(problem);
  if (problem.mask.empty() || !has_block_mask(problem)) {
    refuse_mask(
        fmt::format("\"{}\" has no {}; a block mask is made of a mask's text and of the sizes of "
                    "blocks, as blocks=128",
                    to_string(problem), problem.mask.empty() ? "mask text" : "blocks"));
  }
  if (has_fixed_lengths(problem)) return;
  for (const char* const name : {"seqlen_q", "seqlen_kv"}) {
    if (!mask_depends_on(problem, name)) continue;
    refuse_mask(
        fmt::format("the mask \"{}\" names {}, which only a run of \"{}\" knows; make its blocks "
                    "for sequences that are all of one length, or leave them to the run",
                    problem.mask, name, to_string(problem)));
  }
}

}  // namespace

DeviceBlockMask block_mask_from_text(Device& device, const Problem& problem,
                                     const std::uint64_t* code_arguments,
                                     const DeviceMaskOptions& options) {
  check_text(problem);
  if (!problem.args.empty()) {
    Problem forward = problem;
    forward.dargs.clear();  // no words after those of args are read
    check_code_arguments(forward, code_arguments);
  }
  const auto masks = [&](const char* name, std::int64_t count) {
    return mask_depends_on(problem, name) ? std::max<std::int64_t>(1, count) : 1;
  };
  const BlockMaskShape shape{.block_q = problem.mask_block_q,
                             .block_kv = problem.mask_block_kv,
                             .seqlen_q = problem.seqlen_q,
                             .seqlen_kv = problem.seqlen_kv,
                             .heads = masks("head", problem.num_heads_q),
                             .batch = masks("batch", problem.batch)};
  Maker maker(device, options);
  return made_of_text(maker, mask_text_alone(problem), shape, problem.mask_bits, code_arguments);
}

DeviceBlockMask block_mask_from_dense(Device& device, const BlockMaskShape& shape, const void* seen,
                                      const DeviceMaskOptions& options) {
  validate(shape);
  if (seen == nullptr && shape.rows() * shape.seqlen_kv > 0)
    refuse_mask("a dense mask is null; it is an address in device memory");
  Problem text;
  text.batch = shape.batch;
  text.num_heads_q = text.num_heads_kv = static_cast<int>(shape.heads);
  text.seqlen_q = shape.seqlen_q;
  text.seqlen_kv = shape.seqlen_kv;
  text.mask = fmt::format("seen[((long long)(batch * {} + head) * seqlen_q + q) * seqlen_kv + k]",
                          shape.heads);
  text.args = "bool* seen";
  const std::uint64_t words[] = {reinterpret_cast<std::uintptr_t>(seen)};
  Maker maker(device, options);
  return made_of_text(maker, text, shape, true, words);
}

DeviceBlockMask transposed(Device& device, const DeviceBlockMask& mask,
                           const DeviceMaskOptions& options) {
  BlockMaskShape shape = mask;
  validate(shape);
  std::swap(shape.block_q, shape.block_kv);
  std::swap(shape.seqlen_q, shape.seqlen_kv);
  Maker maker(device, options);
  const DeviceBuffer states = maker.zeros(cells_of(shape));
  const BlockListMemory from = memory_of(mask);
  const bool any = mask.full + mask.partial > 0;
  if (any) maker.run_lists(mark_columns_step(mask, from, {.states = of<std::uint8_t>(states)}));
  DeviceBlockMask result = listed(maker, shape, states, false);
  if (!mask.has_bits()) return result;
  // Blocks of bits keep their numbers.
  result.blocks_of_bits = mask.blocks_of_bits;
  result.bits = maker.allocate(std::max<std::int64_t>(1, mask.blocks_of_bits) *
                               shape.words_per_block() * kNumber);
  result.bit_blocks = maker.allocate(static_cast<std::int64_t>(mask.bit_blocks.size_bytes()));
  const BlockListMemory to = memory_of(result);
  if (any) maker.run_lists(find_bits_step(mask, from, to));
  if (mask.blocks_of_bits > 0)
    maker.run_lists(transpose_bits_step(mask, from, to, mask.blocks_of_bits));
  maker.wait();
  return result;
}

DeviceBlockMask upload_block_mask(Device& device, const BlockMask& mask) {
  validate(mask);
  const BlockCounts counts = count_blocks(mask);
  DeviceBlockMask result{mask, {}, {}, {}, {}};
  result.full = counts.full;
  result.partial = counts.partial;
  result.blocks_of_bits = static_cast<std::int64_t>(mask.bits.size()) / mask.words_per_block();
  const auto copy = [&](const auto& list) {
    DeviceBuffer buffer(device, std::max<std::size_t>(1, list.size()) * kNumber);
    buffer.upload(list.data(), list.size() * kNumber);
    return buffer;
  };
  result.row_begin = copy(mask.row_begin);
  result.columns = copy(mask.columns);
  if (mask.bits.empty()) return result;
  result.bits = copy(mask.bits);
  result.bit_blocks = copy(mask.bit_blocks);
  return result;
}

BlockMask download_block_mask(const DeviceBlockMask& mask) {
  BlockMask result{mask, {}, {}, {}, {}};
  const auto copy = [](const DeviceBuffer& from, auto& list, std::int64_t count) {
    list.resize(static_cast<std::size_t>(count));
    from.download(list.data(), list.size() * kNumber);
  };
  const std::int64_t entries = mask.full + mask.partial;
  copy(mask.row_begin, result.row_begin, mask.rows() + 1);
  copy(mask.columns, result.columns, entries);
  if (mask.blocks_of_bits == 0) return result;
  copy(mask.bits, result.bits, mask.blocks_of_bits * mask.words_per_block());
  copy(mask.bit_blocks, result.bit_blocks, entries);
  return result;
}

BlockCounts count_blocks(const DeviceBlockMask& mask) {
  return {.blocks = mask.rows() * mask.kv_blocks(), .full = mask.full, .partial = mask.partial};
}

BlockMaskRef block_mask_ref(const DeviceBlockMask& mask) {
  return {.row_begin = of<int>(mask.row_begin),
          .columns = of<int>(mask.columns),
          .bits = of<std::uint32_t>(mask.bits),
          .bit_blocks = of<int>(mask.bit_blocks)};
}

Problem with_block_mask(const Problem& problem, const DeviceBlockMask& mask) {
  return with_block_mask(problem, mask, count_blocks(mask).density(), mask.has_bits());
}

}  // namespace attnforge
