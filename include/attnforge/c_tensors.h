/* c_tensors.h - what a run of the C API reads and writes. Included by c.h. */
#ifndef ATTNFORGE_C_TENSORS_H
#define ATTNFORGE_C_TENSORS_H

#include <stddef.h>
#include <stdint.h>

/* Device memory and strides in elements; the last dimension is contiguous. */
typedef struct attnforge_tensor {
  void* data;           /* of q, k and v only read */
  int64_t stride_batch; /* of packed tensors not read, here and below */
  int64_t stride_row;   /* between sequence positions */
  int64_t stride_head;
} attnforge_tensor;

typedef struct attnforge_rows {
  float* data;
  int64_t stride_batch;
  int64_t stride_head; /* that between rows is 1 */
} attnforge_rows;

/* The tables of a rope: [rows, rope_dim / 2] each, contiguous, aligned to 16 bytes. Key j takes row
 * offset + j, query i row offset + i + seqlen_kv - seqlen_q. */
typedef struct attnforge_rope {
  uint32_t struct_size;
  const float* cos;
  const float* sin;
  int64_t rows;
  int64_t offset;
} attnforge_rope;

#define ATTNFORGE_ROPE_INIT \
  { (uint32_t)sizeof(attnforge_rope), NULL, NULL, 0, 0 }

/* How long each sequence is, in device memory, never read on the host. lengths=packed: [batch + 1]
 * each, where every sequence begins among the rows of q and o, or of k and v, ascending from 0, and
 * where the last one ends. lengths=used: [batch] each, how many rows of every sequence count; NULL:
 * all. Never more than the problem's seqlen, nor than the tensors have rows. */
typedef struct attnforge_lengths {
  uint32_t struct_size;
  const int32_t* q;
  const int32_t* kv;
  int64_t tokens_q; /* packed: rows of q and o in this run; 0: as many as the problem says */
  int64_t tokens_kv;
} attnforge_lengths;

#define ATTNFORGE_LENGTHS_INIT \
  { (uint32_t)sizeof(attnforge_lengths), NULL, NULL, 0, 0 }

/* The blocks of a block mask that are present, in device memory, never read on the host. Rows of
 * blocks are ordered [mask_batch, mask_heads, rows of a sequence of seqlen_q]; entries row_begin[r]
 * to row_begin[r + 1] are row r's. An entry of `columns` is its block column * 2, + 1 where the
 * block is partial, ascending in a row. With mask_bits, bit_blocks says of an entry which block of
 * `bits` it has (-1: none), and a block of bits is mask_block_q rows of ceil(mask_block_kv / 32)
 * words: bit k % 32 of word k / 32 is set where key k of the block is seen. `bits` is aligned to 16
 * bytes. */
typedef struct attnforge_block_mask_lists {
  uint32_t struct_size;
  const int32_t* row_begin;
  const int32_t* columns;
  const uint32_t* bits;      /* needed with the word mask_bits */
  const int32_t* bit_blocks; /* the same */
} attnforge_block_mask_lists;

#define ATTNFORGE_BLOCK_MASK_LISTS_INIT \
  { (uint32_t)sizeof(attnforge_block_mask_lists), NULL, NULL, NULL, NULL }

/* Which pages of a pool the sequences have, in device memory, never read on the host: entry
 * table[b * stride_batch + j] is the number of the page that has rows j * page_size and on of
 * sequence b; -1: none, which only an entry after the sequence's length may be. The tensors of k
 * and v are pools: their stride_batch is from page to page, stride_row from row to row in a page.
 */
typedef struct attnforge_pages {
  uint32_t struct_size;
  const int32_t* table; /* [batch, at least seqlen_kv / page_size, rounded up] */
  int64_t stride_batch; /* in entries */
  int64_t num_pages;    /* of k, and of v */
} attnforge_pages;

#define ATTNFORGE_PAGES_INIT \
  { (uint32_t)sizeof(attnforge_pages), NULL, 0, 0 }

/* Scales of k and v, fp32 in device memory, of those that are of 8 or 4 bits: a value is a number
 * of k times element batch * stride_batch + row * stride_row + head * stride_head + g of k.data,
 * where g is the group of its column, 0 but with kv_scale=group32, group64 or group128. With
 * kv_zero it is element ... + 2 * g, and element ... + 2 * g + 1 is added to that. With
 * kv_scale=tensor and head, batch is the sequence and row 0; else they are those of the row in k,
 * with pages the page and the row in it. The same of v. An append writes those of rows, beside its
 * caches. q has some where it is e4m3: with kv_scale=head, head is that of k; with kv_scale=token
 * they are of its own rows and heads, and v has some of heads, as with kv_scale=head. */
typedef struct attnforge_kv_scales {
  uint32_t struct_size;
  attnforge_tensor k;
  attnforge_tensor v;
  attnforge_tensor q;
} attnforge_kv_scales;

#define ATTNFORGE_KV_SCALES_INIT                                                               \
  {                                                                                            \
    (uint32_t)sizeof(attnforge_kv_scales), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, { NULL, 0, 0, 0 } \
  }

/* Gradients, of a problem that begins with bwd: dout, that of o, comes in beside q, k, v, o and
 * lse; dq, dk and dv, of the shapes of q, k and v, and dsinks are written, or with the word
 * accumulate added to. */
typedef struct attnforge_gradients {
  uint32_t struct_size;
  attnforge_tensor dout; /* of the dtype of o */
  attnforge_tensor dq;   /* of the dtypes of q, k and v, or with gradients=fp32 of fp32 */
  attnforge_tensor dk;
  attnforge_tensor dv;
  attnforge_rows dlse; /* needed with the word dlse */
  float* dsinks;       /* needed with the word sinks: [num_heads_q], those of the sinks */
} attnforge_gradients;

#define ATTNFORGE_GRADIENTS_INIT                                                              \
  {                                                                                           \
    (uint32_t)sizeof(attnforge_gradients), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, \
        {NULL, 0, 0, 0}, {NULL, 0, 0}, NULL                                                   \
  }

/* o and lse of queries that have seen some of their keys: a part of a merge. A row with lse =
 * -infinity has seen none, and its o is not read. */
typedef struct attnforge_state {
  attnforge_tensor o;
  attnforge_rows lse;
} attnforge_state;

/* What an append writes to. Rows of positions from seqlen_kv on, and those that have no page, are
 * not written. */
typedef struct attnforge_cache {
  uint32_t struct_size;
  attnforge_tensor k; /* [batch, seqlen_kv, num_heads_kv, head_dim], or pools of pages */
  attnforge_tensor v;
  int32_t* lengths_after; /* needed with the word lengths_after: [batch]; may be lengths.kv */
} attnforge_cache;

#define ATTNFORGE_CACHE_INIT \
  { (uint32_t)sizeof(attnforge_cache), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, NULL }

/* Everything that a run reads and writes. A part is NULL where the problem does not have it, and
 * ignored if it is there all the same; structs of parts are read during the call only. */
typedef struct attnforge_tensors {
  uint32_t struct_size;
  attnforge_tensor q;
  attnforge_tensor k;
  attnforge_tensor v;
  attnforge_tensor o;
  attnforge_rows lse;                           /* needed with the word lse, and by bwd */
  const attnforge_rope* rope;                   /* needed with the word rope */
  const attnforge_lengths* lengths;             /* needed with the word lengths */
  const attnforge_block_mask_lists* block_mask; /* needed with the word blocks */
  const attnforge_pages* pages;                 /* needed with the word page_size */
  const attnforge_gradients* gradients;         /* needed by bwd */
  /* Needed by merge, which has no q, k and v: as many as its word parts says, in host memory, whose
   * keys differ. o and lse, which go out, may be those of one, with equal dtypes. */
  const attnforge_state* parts;
  /* Needed by append: k and v have the new rows, and with the word queries q, which goes to o,
   * maybe itself. lengths, which may be there without its word, says how many rows each sequence
   * has before (kv; NULL: none) and, packed, where the new ones begin (q). All is read on the GPU:
   * in a CUDA graph it may change between replays, and with lengths_after = kv each replay appends
   * after the last one's rows. */
  const attnforge_cache* cache;
  const attnforge_kv_scales* kv_scales; /* needed with the word kv_scale */
  /* Needed with the word args: 8 bytes for each of its arguments, in their order, in host memory:
   * the address of an array in device memory, or a number in the first 4 bytes (float, int32_t).
   * With the word dargs, after them, 8 bytes for each of its names: the address of an fp32 array of
   * as many elements, to which a run adds the gradient of the array of that name. Clear it before
   * the first run: no run does. dargs="whole X": an array as X is, which a run writes. */
  const uint64_t* code_arguments;
  const float* sinks; /* needed with the word sinks: [num_heads_q] logits in device memory */
} attnforge_tensors;

#define ATTNFORGE_TENSORS_INIT                                                                    \
  {                                                                                               \
    (uint32_t)sizeof(attnforge_tensors), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0},       \
        {NULL, 0, 0, 0}, {NULL, 0, 0}, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL \
  }

#endif /* ATTNFORGE_C_TENSORS_H */
