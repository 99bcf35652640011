/* c_block_mask.h - block masks of the C API: made, checked, copied between host and GPU, and drawn.
 * A part of attnforge/c.h, which includes it; the opening comment there holds here too.
 */
#ifndef ATTNFORGE_C_BLOCK_MASK_H
#define ATTNFORGE_C_BLOCK_MASK_H

#include "attnforge/c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* In host memory: made, checked and turned into the lists of attnforge_block_mask_lists, which the
 * caller copies to the GPU; or in the memory of a GPU (those of functions that take a context),
 * ready for runs there. A mask belongs to the caller, who destroys it: one on a GPU before its
 * context, once no run reads it any more. */
typedef struct attnforge_block_mask attnforge_block_mask;

typedef struct attnforge_block_mask_shape {
  uint32_t struct_size;
  int32_t block_q; /* 16, 32, 64 or 128 */
  int32_t block_kv;
  int64_t seqlen_q;
  int64_t seqlen_kv;
  int64_t heads; /* with a mask of their own: 1, num_heads_kv or num_heads_q */
  int64_t batch; /* sequences with one of their own: 1 or batch */
} attnforge_block_mask_shape;

#define ATTNFORGE_BLOCK_MASK_SHAPE_INIT \
  { (uint32_t)sizeof(attnforge_block_mask_shape), 128, 128, 0, 0, 1, 1 }

/* Of block-sparse rows: row r of [batch, heads, rows of blocks] has the block columns
 * indices[row_begin[r]] to indices[row_begin[r + 1] - 1], ascending. `partial` (may be NULL) says
 * of each whether it is partial; `bits` and `bit_blocks` (both may be NULL) as in
 * attnforge_block_mask_lists, an entry of bit_blocks for each of indices. ATTNFORGE_ERR_INVALID
 * names the first fault and its position. */
ATTNFORGE_API attnforge_status attnforge_block_mask_from_bsr(
    const attnforge_block_mask_shape* shape, const int32_t* row_begin, size_t row_begin_count,
    const int32_t* indices, size_t indices_count, const uint8_t* partial, const uint32_t* bits,
    size_t bits_count, const int32_t* bit_blocks, attnforge_block_mask** mask);
/* Of [batch, heads, seqlen_q, seqlen_kv] bytes, `count` in all: a pair whose byte is not 0 is seen.
 */
ATTNFORGE_API attnforge_status
attnforge_block_mask_from_dense(const attnforge_block_mask_shape* shape, const uint8_t* seen,
                                size_t count, attnforge_block_mask** mask);
/* Each block is present with the probability `density`, those on the diagonal always; the same for
 * one seed on every machine. */
ATTNFORGE_API attnforge_status attnforge_block_mask_random(const attnforge_block_mask_shape* shape,
                                                           double density, uint64_t seed,
                                                           attnforge_block_mask** mask);
/* A query at position i + seqlen_kv - seqlen_q sees the keys in [position - left, position + right]
 * (-1: all on that side); all queries see the first `global` keys and the first `global` queries
 * all keys. */
ATTNFORGE_API attnforge_status attnforge_block_mask_window(const attnforge_block_mask_shape* shape,
                                                           int64_t global, int64_t left,
                                                           int64_t right,
                                                           attnforge_block_mask** mask);
/* Blocks on the diagonal, `local` before them, and each `stride`th block column. */
ATTNFORGE_API attnforge_status attnforge_block_mask_strided(const attnforge_block_mask_shape* shape,
                                                            int64_t local, int64_t stride,
                                                            attnforge_block_mask** mask);
/* Documents of these lengths one after another, which fill seqlen_q and seqlen_kv: a query sees its
 * own. */
ATTNFORGE_API attnforge_status
attnforge_block_mask_documents(const attnforge_block_mask_shape* shape, const int64_t* lengths,
                               size_t count, attnforge_block_mask** mask);
/* What the mask text of a problem lets be seen, classified once for any number of runs, on the GPU:
 * in blocks of the problem's word blocks, with masks of their own for heads and sequences where the
 * text names `head` or `batch`. Partial blocks are left to the text, which the problem of a run
 * keeps beside the words of attnforge_block_mask_words; with the word mask_bits they have bits, and
 * a run needs no text. causal and windows are not looked at: runs apply them. `code_arguments` as
 * in attnforge_tensors, ready on `stream`, which is waited for. ATTNFORGE_NO_JIT of the context
 * forbids compiling the text. */
ATTNFORGE_API attnforge_status attnforge_block_mask_from_text(attnforge_context* context,
                                                              const attnforge_problem* problem,
                                                              const uint64_t* code_arguments,
                                                              void* stream,
                                                              attnforge_block_mask** mask);
/* Of [batch, heads, seqlen_q, seqlen_kv] bytes on the GPU, ready on `stream`: a pair whose byte is
 * not 0 is seen. Partial blocks have bits. */
ATTNFORGE_API attnforge_status attnforge_block_mask_from_dense_on_gpu(
    attnforge_context* context, const attnforge_block_mask_shape* shape, const void* seen,
    void* stream, attnforge_block_mask** mask);
/* Copies between host and GPU. */
ATTNFORGE_API attnforge_status attnforge_block_mask_to_gpu(attnforge_context* context,
                                                           const attnforge_block_mask* mask,
                                                           attnforge_block_mask** on_gpu);
ATTNFORGE_API attnforge_status attnforge_block_mask_to_host(const attnforge_block_mask* mask,
                                                            attnforge_block_mask** in_host);
/* The same blocks by columns, where `mask` is: queries and keys change places, and so do rows and
 * columns of bits. `stream` is for masks on a GPU. */
ATTNFORGE_API attnforge_status attnforge_block_mask_transpose(const attnforge_block_mask* mask,
                                                              void* stream,
                                                              attnforge_block_mask** transposed);
ATTNFORGE_API void attnforge_block_mask_destroy(attnforge_block_mask* mask);

/* The addresses for a run's attnforge_tensors.block_mask of a mask on a GPU, which live as long as
 * the mask. */
ATTNFORGE_API attnforge_status attnforge_block_mask_on_gpu(const attnforge_block_mask* mask,
                                                           attnforge_block_mask_lists* lists);
ATTNFORGE_API attnforge_status attnforge_block_mask_get_shape(const attnforge_block_mask* mask,
                                                              attnforge_block_mask_shape* shape);

/* A mask's lists in host memory, which live as long as the mask, and how many blocks it has. The
 * lists of a mask on a GPU are NULL; their counts are right. */
typedef struct attnforge_block_mask_info {
  uint32_t struct_size;
  const int32_t* row_begin;
  const int32_t* columns;
  const uint32_t* bits;      /* NULL without bits */
  const int32_t* bit_blocks; /* NULL without bits; else columns_count entries */
  int64_t row_begin_count;
  int64_t columns_count;
  int64_t bits_count; /* words */
  int64_t blocks;     /* of all rows; those that are neither full nor partial are not present */
  int64_t full;
  int64_t partial;
} attnforge_block_mask_info;

#define ATTNFORGE_BLOCK_MASK_INFO_INIT \
  { (uint32_t)sizeof(attnforge_block_mask_info), NULL, NULL, NULL, NULL, 0, 0, 0, 0, 0, 0 }

ATTNFORGE_API attnforge_status attnforge_block_mask_get(const attnforge_block_mask* mask,
                                                        attnforge_block_mask_info* info);
/* The words that a problem with this mask has: "blocks=128:64 mask_heads=8 density=0.25". Freed
 * with attnforge_free_string. */
ATTNFORGE_API attnforge_status attnforge_block_mask_words(const attnforge_block_mask* mask,
                                                          char** text);
/* One head's mask as lines of text, or as an SVG picture if `svg` is not 0. Freed with
 * attnforge_free_string. */
ATTNFORGE_API attnforge_status attnforge_block_mask_draw(const attnforge_block_mask* mask,
                                                         int64_t head, int64_t sequence,
                                                         int32_t svg, char** text);

#ifdef __cplusplus
}
#endif

#endif /* ATTNFORGE_C_BLOCK_MASK_H */
