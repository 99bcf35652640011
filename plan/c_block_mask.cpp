// c_block_mask.cpp - block masks of the C API.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>

#include "attnforge/block_mask.h"
#include "attnforge/c.h"
#include "plan/c_error.h"
#include "plan/c_handle.h"
#include "plan/c_struct.h"

struct attnforge_block_mask {
  static constexpr std::uint64_t kKind = 0x626c6f636b6d6121;
  static constexpr std::string_view kName = "attnforge_block_mask";
  std::uint64_t kind = kKind;
  attnforge::BlockMask mask{};  // valid
};

namespace {

using attnforge::BlockMask;
using attnforge::BlockMaskShape;
using attnforge::checked_handle;
using attnforge::Error;
using attnforge::ErrorCode;
using attnforge::guarded;

/// Throws Error(kInvalidArgument) for a list that is NULL and not empty.
template <class Value>
std::span<const Value> list_of(const Value* list, std::size_t count, std::string_view name) {
  if (list == nullptr && count > 0)
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} is NULL, but has {} entries", name, count));
  return {list, count};
}

BlockMaskShape shape_of(const attnforge_block_mask_shape* given) {
  static constexpr attnforge_block_mask_shape kDefaults = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
  const attnforge_block_mask_shape shape = attnforge::read_struct(given, kDefaults, "shape");
  return {.block_q = shape.block_q,
          .block_kv = shape.block_kv,
          .seqlen_q = shape.seqlen_q,
          .seqlen_kv = shape.seqlen_kv,
          .heads = shape.heads,
          .batch = shape.batch};
}

/// `make(shape)` gives the mask.
template <class Make>
attnforge_status created(const attnforge_block_mask_shape* shape, attnforge_block_mask** mask,
                         const Make& make) {
  return guarded([&] {
    if (mask == nullptr) throw Error(ErrorCode::kInvalidArgument, "mask is NULL");
    *mask = nullptr;
    *mask = new attnforge_block_mask{.mask = make(shape_of(shape))};
    return ATTNFORGE_OK;
  });
}

char* copy_of(const std::string& text) {
  char* copy = static_cast<char*>(std::malloc(text.size() + 1));
  if (copy == nullptr) throw std::bad_alloc();
  std::memcpy(copy, text.c_str(), text.size() + 1);
  return copy;
}

std::string words_of(const BlockMask& mask) {
  std::string words = fmt::format("blocks={}:{}", mask.block_q, mask.block_kv);
  if (mask.heads != 1) words += fmt::format(" mask_heads={}", mask.heads);
  if (mask.batch != 1) words += fmt::format(" mask_batch={}", mask.batch);
  if (!mask.bits.empty()) words += " mask_bits";
  constexpr double kLeastDensity = 1e-6;
  const double density = std::max(kLeastDensity, attnforge::count_blocks(mask).density());
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
    return attnforge::block_mask_from_bsr(
        of, list_of(row_begin, row_begin_count, "row_begin"),
        list_of(indices, indices_count, "indices"),
        list_of(partial, partial == nullptr ? 0 : indices_count, "partial"),
        list_of(bits, bits_count, "bits"), list_of(bit_blocks, with_bits, "bit_blocks"));
  });
}

attnforge_status attnforge_block_mask_from_dense(const attnforge_block_mask_shape* shape,
                                                 const uint8_t* seen, size_t count,
                                                 attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return attnforge::block_mask_from_dense(of, list_of(seen, count, "seen"));
  });
}

attnforge_status attnforge_block_mask_random(const attnforge_block_mask_shape* shape,
                                             double density, uint64_t seed,
                                             attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return attnforge::random_block_mask(of, {.density = density, .seed = seed});
  });
}

attnforge_status attnforge_block_mask_window(const attnforge_block_mask_shape* shape,
                                             int64_t global, int64_t left, int64_t right,
                                             attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return attnforge::global_window_mask(of, global, left, right);
  });
}

attnforge_status attnforge_block_mask_strided(const attnforge_block_mask_shape* shape,
                                              int64_t local, int64_t stride,
                                              attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return attnforge::strided_mask(of, local, stride);
  });
}

attnforge_status attnforge_block_mask_documents(const attnforge_block_mask_shape* shape,
                                                const int64_t* lengths, size_t count,
                                                attnforge_block_mask** mask) {
  return created(shape, mask, [&](const BlockMaskShape& of) {
    return attnforge::document_mask(of, list_of(lengths, count, "lengths"));
  });
}

void attnforge_block_mask_destroy(attnforge_block_mask* mask) { attnforge::destroy(mask); }

attnforge_status attnforge_block_mask_get(const attnforge_block_mask* mask,
                                          attnforge_block_mask_info* info) {
  return guarded([&] {
    static constexpr attnforge_block_mask_info kDefaults = ATTNFORGE_BLOCK_MASK_INFO_INIT;
    attnforge_block_mask_info out = attnforge::read_struct(info, kDefaults, "info");
    const BlockMask& of = checked_handle(mask, "mask").mask;
    const attnforge::BlockCounts counts = attnforge::count_blocks(of);
    out.row_begin = of.row_begin.data();
    out.columns = of.columns.data();
    out.bits = of.bits.empty() ? nullptr : of.bits.data();
    out.bit_blocks = of.bits.empty() ? nullptr : of.bit_blocks.data();
    out.row_begin_count = static_cast<std::int64_t>(of.row_begin.size());
    out.columns_count = static_cast<std::int64_t>(of.columns.size());
    out.bits_count = static_cast<std::int64_t>(of.bits.size());
    out.blocks = counts.blocks;
    out.full = counts.full;
    out.partial = counts.partial;
    attnforge::write_struct(info, out);
    return ATTNFORGE_OK;
  });
}

attnforge_status attnforge_block_mask_words(const attnforge_block_mask* mask, char** text) {
  return guarded([&] {
    if (text == nullptr) throw Error(ErrorCode::kInvalidArgument, "text is NULL");
    *text = copy_of(words_of(checked_handle(mask, "mask").mask));
    return ATTNFORGE_OK;
  });
}

attnforge_status attnforge_block_mask_draw(const attnforge_block_mask* mask, int64_t head,
                                           int64_t sequence, int32_t svg, char** text) {
  return guarded([&] {
    if (text == nullptr) throw Error(ErrorCode::kInvalidArgument, "text is NULL");
    const BlockMask& of = checked_handle(mask, "mask").mask;
    *text = copy_of(svg != 0 ? attnforge::to_svg(of, head, sequence)
                             : attnforge::to_text(of, head, sequence));
    return ATTNFORGE_OK;
  });
}
