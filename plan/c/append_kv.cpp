// append_kv.cpp - append_kv() of the C API.
#include <cstdint>
#include <string_view>

#include "attnforge/append_kv.h"
#include "attnforge/c.h"
#include "plan/c/convert.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"
#include "plan/c/struct.h"

using attnforge::dtype_named;
using attnforge::Error;
using attnforge::ErrorCode;
using attnforge::guarded;
using attnforge::or_empty;

namespace {

attnforge::Rope rope_named(std::string_view name, const char* word) {
  for (const auto rope :
       {attnforge::Rope::kNone, attnforge::Rope::kInterleaved, attnforge::Rope::kHalf}) {
    if (or_empty(word) == attnforge::to_string(rope)) return rope;
  }
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{} is \"{}\"; it must be none, interleaved or half", name, or_empty(word)));
}

}  // namespace

attnforge_status attnforge_append_kv(attnforge_context* context, const attnforge_append* append,
                                     void* stream) {
  return guarded([&] {
    static constexpr attnforge_append kDefaults = ATTNFORGE_APPEND_INIT;
    const attnforge_append given = attnforge::read_struct(append, kDefaults, "append");
    // What does not fit an int is refused with the value that was given.
    const auto as_int = [](std::string_view name, std::int64_t value) {
      if (value < 0 || value > 1 << 20) {
        throw Error(ErrorCode::kInvalidArgument,
                    fmt::format("append.{} is {}; it must be from 0 to {}", name, value, 1 << 20));
      }
      return static_cast<int>(value);
    };
    const attnforge::AppendSizes sizes{.dtype = dtype_named("append.dtype", given.dtype),
                                       .batch = given.batch,
                                       .seqlen_new = given.seqlen_new,
                                       .tokens = given.tokens,
                                       .seqlen_kv = given.seqlen_kv,
                                       .page_size = as_int("page_size", given.page_size),
                                       .num_heads_kv = given.num_heads_kv,
                                       .num_heads_q = given.num_heads_q,
                                       .head_dim = as_int("head_dim", given.head_dim),
                                       .head_dim_v = as_int("head_dim_v", given.head_dim_v),
                                       .rope = rope_named("append.rope", given.rope),
                                       .rope_dim = as_int("rope_dim", given.rope_dim)};
    const auto tensor = [](const attnforge_tensor& t) {
      return attnforge::Tensor{t.data, t.stride_batch, t.stride_row, t.stride_head};
    };
    attnforge::AppendTensors tensors{.k = tensor(given.k),
                                     .v = tensor(given.v),
                                     .k_cache = tensor(given.k_cache),
                                     .v_cache = tensor(given.v_cache),
                                     .cu_seqlens = given.cu_seqlens,
                                     .used_kv = given.used_kv,
                                     .used_kv_after = given.used_kv_after,
                                     .q = tensor(given.q),
                                     .rotated_q = tensor(given.rotated_q)};
    if (given.pages != nullptr) {
      const attnforge_pages pages = attnforge::read_struct(given.pages, attnforge_pages{},
                                                           "append.pages");
      tensors.pages = {pages.table, pages.stride_batch, pages.num_pages};
    }
    if (given.rope_tables != nullptr) {
      const attnforge_rope rope = attnforge::read_struct(given.rope_tables, attnforge_rope{},
                                                         "append.rope_tables");
      tensors.rope = {rope.cos, rope.sin, rope.rows, rope.offset};
    }
    attnforge::Device& device = attnforge::device_of(context);  // before anything asks a null one
    attnforge::append_kv(sizes, tensors, device, stream, !context->no_jit);
    return ATTNFORGE_OK;
  });
}
