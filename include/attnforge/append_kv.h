// append_kv.h - new rows of K and V into a cache: strided or in pages, rotated by their positions
// and quantised where asked.
#pragma once

#include <cstdint>
#include <optional>

#include "attnforge/device.h"
#include "attnforge/plan.h"
#include "attnforge/problem.h"

namespace attnforge {

/// What is appended: new rows [batch, seqlen_new, num_heads_kv, head_dim] of k and
/// [batch, seqlen_new, num_heads_kv, head_dim_v] of v, or packed ones [tokens, num_heads_kv, ...].
struct AppendSizes {
  DType dtype = DType::kBf16;  // of all tensors, but for caches that have one of their own below
  std::int64_t batch = 1;
  std::int64_t seqlen_new = 1;  // of every sequence; of packed rows not read
  std::int64_t tokens = 0;      // rows of packed tensors, at least as many as their sequences have
  std::int64_t seqlen_kv = 0;   // rows that a sequence may have in the cache
  int page_size = 0;            // rows of a page, as page_size of a problem; 0: not in pages
  std::int64_t num_heads_kv = 1;
  std::int64_t num_heads_q = 0;  // of q, which is rotated as well; 0: there is none
  int head_dim = 128;            // of k and q: a multiple of 8 up to 512
  int head_dim_v = 128;
  Rope rope = Rope::kNone;
  int rope_dim = 0;  // leading elements that rotate: a multiple of 8 up to head_dim; 0: all
  // Of 8 or 4 bits (is_low_bit()): rows of 16 bits become numbers and, of kv_scale kToken and
  // groups, scales. Those of kTensor and kHead are read; kNone: numbers are values.
  std::optional<DType> dtype_k_cache{}, dtype_v_cache{};
  KvScale kv_scale = KvScale::kNone;
  bool kv_zero = false;  // as problem.kv_zero
};

/// All memory is on the GPU and borrowed; tensors have any strides with a contiguous last
/// dimension. A cache that is not in pages is [batch, seqlen_kv, num_heads_kv, head_dim]; of one in
/// pages the batch is the page: k_cache.stride_batch is from page to page and k_cache.stride_row
/// from row to row within one.
struct AppendTensors {
  Tensor k{}, v{};  // of packed rows stride_batch is not read
  Tensor k_cache{}, v_cache{};
  PageTable pages{};
  // [batch + 1]: where each sequence begins among packed rows, ascending from 0, and where the last
  // one ends. Null: not packed.
  const int* cu_seqlens = nullptr;
  // [batch]: rows that each sequence has in the cache before. Null: none.
  const int* used_kv = nullptr;
  // [batch]: rows that each has afterwards, which the kernel writes. May be used_kv itself, else
  // they do not overlap. Null: not written.
  int* used_kv_after = nullptr;
  RopeTables rope{};        // row offset + p for position p; all of seqlen_kv positions are there
  Tensor q{}, rotated_q{};  // with num_heads_q; in place where both are one
  ScaleTensor k_scale{}, v_scale{};  // of caches of 8 or 4 bits, with kv_scale
};

/// Enqueues on `stream`: row i of the new rows of sequence b becomes row used_kv[b] + i of its
/// cache, k (and q, which goes to rotated_q) rotated by the angles of that position, rounded to the
/// dtype. Bits of what is not rotated stay as they are. In a cache of 8 or 4 bits a number is x /
/// scale in fp32, rounded to the nearest, ties to even, and no farther from 0 than the largest of
/// the format (127, 7, 448, 57344), x being what would go to a cache of 16 bits. A scale of rows is
/// the largest |x| that it is of / that largest number; NaN if one is NaN or infinite. Dividing by
/// a scale of 0 is by 1; NaN becomes NaN, or 0 of integers. With kv_zero the smallest x becomes -8
/// and the largest 7: a scale is (largest / 2 - smallest / 2) * (2 / 15), the zero point smallest +
/// 8 * scale, and a number is (x - zero point) * (1 / scale), each operation in fp32. Lengths, page
/// tables and pages are read on the GPU when the kernel runs, so a CUDA graph may be replayed with
/// others; with used_kv_after = used_kv each replay appends after the last one's rows. Rows of
/// positions from seqlen_kv on, and those of pages that are not among num_pages (-1, say), are not
/// written, nor is their q; used_kv_after never is above seqlen_kv. No other run may read the rows
/// that are written, or use their pages, at the same time. With ATTNFORGE_CHECK_INPUTS=1 lengths
/// and tables are read on the host first, which waits for the stream (not during a capture, when
/// nothing is looked at), and Error(kInvalidArgument) names a length above its bound, a page that
/// is not there, and a page that two sequences write. It makes a plan for an append of these sizes
/// and of the alignment that these tensors have, and runs it. The first call for this dtype, these
/// head dims, rope and alignment, with or without q and new lengths, of one row for each sequence
/// or of more, compiles a kernel, or takes it from the database; later ones, and those after
/// prepare_append_kv(), only launch, and may be captured. Throws as make_plan() and Plan::run();
/// Error(kNotReady) if the kernel is not there and `allow_compile` is false.
ATTNFORGE_API void append_kv(const AppendSizes& sizes, const AppendTensors& tensors, Device& device,
                             void* stream = nullptr, bool allow_compile = true);

/// Has ready what append_kv() of these would compile and load, and runs nothing: a graph can be
/// captured of the first one. Of the tensors, which may hold anything, addresses and strides count.
/// Throws as make_plan().
ATTNFORGE_API void prepare_append_kv(const AppendSizes& sizes, const AppendTensors& tensors,
                                     Device& device, bool allow_compile = true);

}  // namespace attnforge
