// block_mask.cpp - block masks of the C API.
#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "attnforge/block_mask.h"
#include "attnforge/c.h"
#include "attnforge/device_block_mask.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"
#include "plan/c/struct.h"

struct attnforge_block_mask {
  static constexpr std::uint64_t kKind = 0x626c6f636b6d6121;
  static constexpr std::string_view kName = "attnforge_block_mask";
  std::uint64_t kind = kKind;
  attnforge::BlockMask mask{};  // valid, in host memory, unless the other is there
  std::optional<attnforge::DeviceBlockMask> on_gpu{};
  attnforge_context* context = nullptr;  // of on_gpu

  const attnforge::BlockMaskShape& shape() const {
    if (on_gpu) return *on_gpu;
    return mask;
  }
  attnforge::BlockCounts counts() const {
    return on_gpu ? attnforge::count_blocks(*on_gpu) : attnforge::count_blocks(mask);
  }
  bool has_bits() const { return on_gpu ? on_gpu->has_bits() : !mask.bits.empty(); }
};

using namespace attnforge;

namespace {

/// Throws Error(kInvalidArgument) for a list that is NULL and not empty.
template <class Value>
std::span<const Value> list_of(const Value* list, std::size_t count, std::string_view name) {
  if (list == nullptr && count > 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is NULL, but has {} entries", name, count));
  return {list, count};
}

using Handle = std::unique_ptr<attnforge_block_mask>;

Handle in_host(BlockMask mask) {
  Handle handle = std::make_unique<attnforge_block_mask>();
  handle->mask = std::move(mask);
  return handle;
}

/// On the GPU of a context; `make(device, options)` gives it.
template <class Make>
Handle on_gpu(attnforge_context* context, void* stream, const Make& make) {
  Device& device = device_of(context);
  Handle handle = std::make_unique<attnforge_block_mask>();
  handle->on_gpu = make(device,
                        DeviceMaskOptions{.stream = stream, .allow_compile = !context->no_jit});
  handle->context = context;
  return handle;
}

/// The same in `*mask`.
template <class Make>
attnforge_status created_on_gpu(attnforge_context* context, void* stream,
                                attnforge_block_mask** mask, std::string_view name,
                                const Make& make) {
  return created(mask, name, [&] { return on_gpu(context, stream, make); });
}

BlockMaskShape shape_of(const attnforge_block_mask_shape* given) {
  static constexpr attnforge_block_mask_shape kDefaults = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
  const attnforge_block_mask_shape shape = read_struct(given, kDefaults, "shape");
  return {.block_q = shape.block_q,
          .block_kv = shape.block_kv,
          .seqlen_q = shape.seqlen_q,
          .seqlen_kv = shape.seqlen_kv,
          .heads = shape.heads,
          .batch = shape.batch};
}

/// `make()` gives what the handle holds.
template <class Make>
attnforge_status created(attnforge_block_mask** mask, std::string_view name, const Make& make) {
  return guarded([&] {
    required(mask, name) = nullptr;
    *mask = make().release();
  });
}

/// `make(shape)` gives the mask.
template <class Make>
attnforge_status created(const attnforge_block_mask_shape* shape, attnforge_block_mask** mask,
                         const Make& make) {
  return created(mask, "mask", [&] { return in_host(make(shape_of(shape))); });
}

std::string words_of(const attnforge_block_mask& handle) {
  const BlockMaskShape& mask = handle.shape();
  std::string words = fmt::format("blocks={}:{}", mask.block_q, mask.block_kv);
  if (mask.heads != 1) words += fmt::format(" mask_heads={}", mask.heads);
  if (mask.batch != 1) words += fmt::format(" mask_batch={}", mask.batch);
  if (handle.has_bits()) words += " mask_bits";
  constexpr double kLeastDensity = 1e-6;
  const double density = std::max(kLeastDensity, handle.counts().density());
  return words + fmt::format(" density={}", static_cast<float>(density));
}

}  // namespace

attnforge_status attnforge_block_mask_from_bsr(const attnforge_block_mask_shape* shape,
                                               const int32_t* row_begin, size_t row_begin_count,
                                               const int32_t* indices, size_t indices_count,
                                               const uint8_t* partial, const uint32_t* bits,
                                               size_t bits_count, const int32_t* bit_blocks,
                                               attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    const std::size_t with_bits = bit_blocks == nullptr ? 0 : indices_count;
    return block_mask_from_bsr(of, list_of(row_begin, row_begin_count, "row_begin"),
                               list_of(indices, indices_count, "indices"),
                               list_of(partial, partial == nullptr ? 0 : indices_count, "partial"),
                               list_of(bits, bits_count, "bits"),
                               list_of(bit_blocks, with_bits, "bit_blocks"));
  });
}

attnforge_status attnforge_block_mask_from_dense(const attnforge_block_mask_shape* shape,
                                                 const uint8_t* seen, size_t count,
                                                 attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return block_mask_from_dense(of, list_of(seen, count, "seen"));
  });
}

attnforge_status attnforge_block_mask_random(const attnforge_block_mask_shape* shape,
                                             double density, uint64_t seed,
                                             attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return random_block_mask(of, {.density = density, .seed = seed});
  });
}

attnforge_status attnforge_block_mask_window(const attnforge_block_mask_shape* shape,
                                             int64_t global, int64_t left, int64_t right,
                                             attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return global_window_mask(of, global, left, right);
  });
}

attnforge_status attnforge_block_mask_strided(const attnforge_block_mask_shape* shape,
                                              int64_t local, int64_t stride,
                                              attnforge_block_mask** mask) {
  return created(shape, mask,
                 [&](const BlockMaskShape& of) { return strided_mask(of, local, stride); });
}

attnforge_status attnforge_block_mask_documents(const attnforge_block_mask_shape* shape,
                                                const int64_t* lengths, size_t count,
                                                attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return document_mask(of, list_of(lengths, count, "lengths"));
  });
}

attnforge_status attnforge_block_mask_from_text(attnforge_context* context,
                                                const attnforge_problem* problem,
                                                const uint64_t* code_arguments, void* stream,
                                                attnforge_block_mask** mask) {
  return created_on_gpu(
      context, stream, mask, "mask", [&](Device& device, const DeviceMaskOptions& options) {
        return block_mask_from_text(device, checked_handle(problem, "problem").problem,
                                    code_arguments, options);
      });
}

attnforge_status attnforge_block_mask_from_dense_on_gpu(attnforge_context* context,
                                                        const attnforge_block_mask_shape* shape,
                                                        const void* seen, void* stream,
                                                        attnforge_block_mask** mask) {
  return created_on_gpu(context, stream, mask, "mask",
                        [&](Device& device, const DeviceMaskOptions& options) {
                          return block_mask_from_dense(device, shape_of(shape), seen, options);
                        });
}

attnforge_status attnforge_block_mask_to_gpu(attnforge_context* context,
                                             const attnforge_block_mask* mask,
                                             attnforge_block_mask** to) {
  return created_on_gpu(context, nullptr, to, "on_gpu",
                        [&](Device& device, const DeviceMaskOptions&) {
                          const attnforge_block_mask& from = checked_handle(mask, "mask");
                          return upload_block_mask(
                              device, from.on_gpu ? download_block_mask(*from.on_gpu) : from.mask);
                        });
}

attnforge_status attnforge_block_mask_to_host(const attnforge_block_mask* mask,
                                              attnforge_block_mask** to) {
  return created(to, "in_host", [&] {
    const attnforge_block_mask& from = checked_handle(mask, "mask");
    return in_host(from.on_gpu ? download_block_mask(*from.on_gpu) : from.mask);
  });
}

attnforge_status attnforge_block_mask_transpose(const attnforge_block_mask* mask, void* stream,
                                                attnforge_block_mask** transposed) {
  return created(transposed, "transposed", [&] {
    const attnforge_block_mask& from = checked_handle(mask, "mask");
    if (!from.on_gpu) return in_host(attnforge::transposed(from.mask));
    return on_gpu(from.context, stream, [&](Device& device, const DeviceMaskOptions& options) {
      return attnforge::transposed(device, *from.on_gpu, options);
    });
  });
}

attnforge_status attnforge_block_mask_on_gpu(const attnforge_block_mask* mask,
                                             attnforge_block_mask_lists* lists) {
  return guarded([&] {
    static constexpr attnforge_block_mask_lists kDefaults = ATTNFORGE_BLOCK_MASK_LISTS_INIT;
    attnforge_block_mask_lists out = read_struct(lists, kDefaults, "lists");
    const attnforge_block_mask& of = checked_handle(mask, "mask");
    if (!of.on_gpu) {
      throw Error(ErrorCode::kInvalidArgument,
                  "mask is in host memory; copy it with attnforge_block_mask_to_gpu");
    }
    const BlockMaskRef ref = block_mask_ref(*of.on_gpu);
    out.row_begin = ref.row_begin;
    out.columns = ref.columns;
    out.bits = ref.bits;
    out.bit_blocks = ref.bit_blocks;
    write_struct(lists, out);
  });
}

attnforge_status attnforge_block_mask_get_shape(const attnforge_block_mask* mask,
                                                attnforge_block_mask_shape* shape) {
  return guarded([&] {
    static constexpr attnforge_block_mask_shape kDefaults = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
    attnforge_block_mask_shape out = read_struct(shape, kDefaults, "shape");
    const BlockMaskShape& of = checked_handle(mask, "mask").shape();
    out.block_q = of.block_q;
    out.block_kv = of.block_kv;
    out.seqlen_q = of.seqlen_q;
    out.seqlen_kv = of.seqlen_kv;
    out.heads = of.heads;
    out.batch = of.batch;
    write_struct(shape, out);
  });
}

void attnforge_block_mask_destroy(attnforge_block_mask* mask) { destroy(mask); }

attnforge_status attnforge_block_mask_get(const attnforge_block_mask* mask,
                                          attnforge_block_mask_info* info) {
  return guarded([&] {
    static constexpr attnforge_block_mask_info kDefaults = ATTNFORGE_BLOCK_MASK_INFO_INIT;
    attnforge_block_mask_info out = read_struct(info, kDefaults, "info");
    const attnforge_block_mask& handle = checked_handle(mask, "mask");
    const BlockCounts counts = handle.counts();
    if (handle.on_gpu) {
      out.row_begin = out.columns = out.bit_blocks = nullptr;
      out.bits = nullptr;
      out.row_begin_count = handle.shape().rows() + 1;
      out.columns_count = counts.full + counts.partial;
      out.bits_count = static_cast<std::int64_t>(handle.on_gpu->bits.size_bytes() /
                                                 sizeof(std::uint32_t));
    } else {
      const BlockMask& of = handle.mask;
      out.row_begin = of.row_begin.data();
      out.columns = of.columns.data();
      out.bits = of.bits.empty() ? nullptr : of.bits.data();
      out.bit_blocks = of.bits.empty() ? nullptr : of.bit_blocks.data();
      out.row_begin_count = static_cast<std::int64_t>(of.row_begin.size());
      out.columns_count = static_cast<std::int64_t>(of.columns.size());
      out.bits_count = static_cast<std::int64_t>(of.bits.size());
    }
    out.blocks = counts.blocks;
    out.full = counts.full;
    out.partial = counts.partial;
    write_struct(info, out);
  });
}

attnforge_status attnforge_block_mask_words(const attnforge_block_mask* mask, char** text) {
  return guarded([&] { required(text, "text") = copied(words_of(checked_handle(mask, "mask"))); });
}

attnforge_status attnforge_block_mask_draw(const attnforge_block_mask* mask, int64_t head,
                                           int64_t sequence, int32_t svg, char** text) {
  return guarded([&] {
    required(text, "text");
    const attnforge_block_mask& handle = checked_handle(mask, "mask");
    const BlockMask copy = handle.on_gpu ? download_block_mask(*handle.on_gpu) : BlockMask{};
    const BlockMask& of = handle.on_gpu ? copy : handle.mask;
    *text = copied(svg != 0 ? to_svg(of, head, sequence) : to_text(of, head, sequence));
  });
}
