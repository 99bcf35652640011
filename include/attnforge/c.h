/* c.h - the C API of attnforge. C99 and C++; this comment is the whole contract.
 *
 * What it is for. An engine describes an attention problem, gets a plan (a loaded kernel), and
 * runs it on its own memory and streams:
 *
 *   #include <attnforge/c.h>
 *   #include <stdio.h>
 *
 *   struct engine {
 *     attnforge_context* context;
 *     attnforge_problem* problem;
 *     attnforge_plan* plan;
 *     size_t workspace_bytes;  // of device memory that each run needs; 0 for most problems
 *   };
 *
 *   int begin(struct engine* e) {
 *     const char* text = "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal";
 *     if (attnforge_context_create(NULL, &e->context) == ATTNFORGE_OK &&
 *         attnforge_problem_create(text, &e->problem) == ATTNFORGE_OK &&
 *         attnforge_plan_create(e->context, e->problem, NULL, &e->plan) == ATTNFORGE_OK &&
 *         attnforge_plan_workspace(e->plan, NULL, &e->workspace_bytes) == ATTNFORGE_OK)
 *       return 1;
 *     puts(attnforge_last_error());
 *     return 0;
 *   }
 *
 *   // All in device memory; the workspace may be NULL where it has no bytes, and hold anything.
 *   int attend(const struct engine* e, void* q, void* k, void* v, void* o, void* workspace,
 *              void* stream) {
 *     attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
 *     attnforge_contiguous_tensors(e->problem, &tensors);
 *     tensors.q.data = q;
 *     tensors.k.data = k;
 *     tensors.v.data = v;
 *     tensors.o.data = o;
 *     if (attnforge_run(e->plan, &tensors, workspace, e->workspace_bytes, stream) == ATTNFORGE_OK)
 *       return 1;
 *     puts(attnforge_last_error());
 *     return 0;
 *   }
 *
 *   // Once the stream has passed the last run.
 *   void end(struct engine* e) {
 *     attnforge_plan_destroy(e->plan);
 *     attnforge_problem_destroy(e->problem);
 *     attnforge_context_destroy(e->context);
 *   }
 *
 * Errors. Every function that can fail returns an attnforge_status. The text of the last failure
 * of the calling thread is in attnforge_last_error(): what failed, with which values, and what to
 * do. It stays valid until the thread's next call that returns a status; one that succeeds leaves
 * it empty. No C++ exception leaves the library, and it neither prints nor aborts. When a call
 * fails, its outputs are untouched but for handles, which become NULL.
 *
 * Structs. Each begins with struct_size, the size that the caller was compiled with; use the INIT
 * macros, which set it and the defaults, for inputs and outputs alike. Later versions only add
 * fields at the end: a shorter struct means the default for what it lacks, a longer one is taken
 * if all that this library does not know is zero, else it is ATTNFORGE_ERR_INVALID. Only
 * attnforge_tensor and attnforge_rows, which lie inside of another, have none and never change.
 *
 * Handles. Contexts, problems and plans belong to the caller, who destroys them: plans before their
 * context; a problem may go once the call that took it has returned. Destroying NULL does nothing.
 * A handle that is NULL, of another kind or destroyed is ATTNFORGE_ERR_INVALID, and destroying it
 * again does nothing; but memory that was freed may hold anything by then, so do not rely on it.
 *
 * Ownership. Strings returned as char* are freed by
 * attnforge_free_string; those returned as const char* belong to the object that they describe
 * (or, for names and versions, to the library). Strings passed in are copied. Tensors and
 * workspaces belong to the caller and must live until the stream has passed the run.
 *
 * Threads. Contexts and plans may be used from any number of threads at once, on one stream or
 * many; problems too, but nobody may use one while attnforge_problem_set_sizes changes it. Runs
 * that need a workspace may overlap if each has one of its own. Callbacks are called on any thread
 * (log) or on the calling thread (progress), and must not call back into the same context.
 * Destroying an object that another thread still uses is the caller's mistake.
 *
 * CUDA contexts. A context opens one GPU: the CUDA context current in the creating thread if it
 * belongs to that GPU, else the primary one. Runs work from threads where another context, or
 * none, is current, and leave it as it was. No device memory is allocated but for code, while
 * tuning, and for counters from which blocks take their work: 32 bytes for each stream, known by
 * its id whatever its handle, and for each captured launch. Streams that are idle or destroyed give
 * theirs back. Of a captured graph only one executable may run at a time.
 *
 * Cost. attnforge_query takes microseconds. attnforge_plan_create is the only call that may be
 * slow (a compile or, by policy, a tuning), also attnforge_tune, of course; ATTNFORGE_NO_JIT
 * forbids it to compile, and what it would have to compile is then ATTNFORGE_ERR_NOT_READY with
 * the problem's text, to be tuned beforehand. attnforge_run allocates nothing (but more counters
 * when some thousand streams or captured launches have theirs), does not synchronise, takes about a
 * microsecond more than the driver's launch, and may be captured into a CUDA graph. Create plans
 * before a capture.
 *
 * Forks. CUDA does not survive a fork. In a child whose parent had opened a GPU, contexts and plans
 * of the parent and new contexts of a GPU are ATTNFORGE_ERR_CUDA with what to do; destroying the
 * parent's does nothing, and its leases and database stay as they are. Texts of plans, problems and
 * contexts of an arch work, unless another thread was inside a call when the process forked. Fork
 * before the first context of a GPU is created, or start new programs instead (exec).
 *
 * State. All state hangs on contexts, but for the error text of each thread. The driver and NVRTC
 * libraries are opened when first needed and stay open. Environment variables are read when a
 * context is created (attnforge doctor lists them).
 *
 * Stability. Functions, struct fields and enum values do not change their meaning within one
 * ATTNFORGE_ABI_VERSION; new ones are added. Compare attnforge_abi_version() with
 * ATTNFORGE_ABI_VERSION after loading the library by hand.
 */
#ifndef ATTNFORGE_C_H
#define ATTNFORGE_C_H

#include <stddef.h>
#include <stdint.h>

#if defined(__GNUC__)
#define ATTNFORGE_API __attribute__((visibility("default")))
#else
#define ATTNFORGE_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define ATTNFORGE_ABI_VERSION 2

typedef enum attnforge_status {
  ATTNFORGE_OK = 0,
  ATTNFORGE_ERR_INVALID = 1,     /* a problem or an argument: nothing was launched or stored */
  ATTNFORGE_ERR_UNSUPPORTED = 2, /* valid, but no kernel family serves it; the text has each reason
                                  */
  ATTNFORGE_ERR_WORKSPACE = 3,   /* the workspace is missing, too small or not 256-byte aligned */
  ATTNFORGE_ERR_COMPILE = 4,     /* NVRTC refused a source */
  ATTNFORGE_ERR_CUDA = 5,        /* a driver call failed */
  ATTNFORGE_ERR_NOT_READY = 6,   /* needs work that was forbidden; the text has the command to do it
                                  */
  ATTNFORGE_ERR_NO_MEMORY = 7,   /* host memory */
  ATTNFORGE_ERR_NO_DRIVER = 8,   /* libcuda, libnvrtc or the GPU is missing */
  ATTNFORGE_ERR_IO = 9,          /* the database or another file cannot be used */
  ATTNFORGE_ERR_INTERNAL = 10    /* a bug in attnforge */
} attnforge_status;

/* ---- Versions and texts ---- */

ATTNFORGE_API uint32_t attnforge_abi_version(void);
/* "0.1.0" */
ATTNFORGE_API const char* attnforge_version(void);
/* "not_ready" for ATTNFORGE_ERR_NOT_READY; "unknown" for other numbers. */
ATTNFORGE_API const char* attnforge_status_name(attnforge_status status);
/* Of this thread; "" after a success. */
ATTNFORGE_API const char* attnforge_last_error(void);
/* NULL does nothing. */
ATTNFORGE_API void attnforge_free_string(char* text);

/* ---- Problems ---- */

/* What is computed: softmax(softmax_scale * Q K^T, masked) V for `batch` sequences.
 *   q   [batch, num_heads_q,  seqlen_q,  head_dim]
 *   k   [batch, num_heads_kv, seqlen_kv, head_dim]
 *   v   [batch, num_heads_kv, seqlen_kv, head_dim_v]
 *   o   [batch, num_heads_q,  seqlen_q,  head_dim_v]
 *   lse [batch, num_heads_q,  seqlen_q]  fp32, natural logarithm, optional
 * in any order of strides with a contiguous last dimension. Query head h reads key/value head
 * h / (num_heads_q / num_heads_kv). Query row i stands at key position i + seqlen_kv - seqlen_q and
 * sees the keys from position - window_left to position + window_right; causal is window_right = 0.
 * A row that sees no key gives o = 0 and lse = -infinity. With rope, the first rope_dim elements of
 * q and k are rotated first: (x, y) becomes (x cos - y sin, y cos + x sin), by the tables of a run.
 *
 * A problem is made from its text, words in any order after the first, e.g.
 * "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal lse":
 *   fwd                      the first word
 *   fp32, fp16 or bf16       of all tensors; or q=fp16 k=fp16 v=fp16 o=fp16
 *   batch=1
 *   num_heads=32:8           queries:keys, or one number for both; keys' divides queries'
 *   seqlen=100:4096          queries:keys, or one number for both; 0 allowed
 *   head_dim=192:128         of q and k:of v and o, or one number; multiples of 8 up to 512
 *   layout=bshd              of contiguous tensors (any strides may be run): bshd, bhsd, packed_qkv
 *   causal
 *   window_left=1023 window_right=0     left out: all keys on that side
 *   lse                      also write lse
 *   softcap=50               s = softcap * tanh(s / softcap) after scaling
 *   softmax_scale=0.125      left out: 1 / sqrt(head_dim)
 *   tf32                     of fp32 q, k, v: products may round their inputs to TF32
 *   lengths=packed           sequences of different lengths, one after another in tensors without a
 *                            batch, q [tokens_q, num_heads_q, head_dim] and so on and lse
 *                            [num_heads_q, tokens_q]; arrays of a run say how long each is, seqlen
 *                            is the most that one may have. Not with rope
 *   tokens=9000:70000        of packed tensors, queries:keys: the most rows; left out: all that
 *                            batch sequences of seqlen have
 *   lengths=used             padded sequences of which only the first rows count, as arrays of a
 *                            run say; the others are not read, nor written. Not with rope
 *   page_size=64             with lengths=used: k and v lie in pages of so many keys, a multiple
 *                            of 8 up to 65536, and a table of a run says which pages a sequence
 *                            has
 *   batch_invariant          the bits of a sequence's result do not depend on what else is in the
 *                            batch, nor on its size. Not with blocks
 *   sinks                    the softmax of a row counts one more score without a value: the logit
 *                            of its query head, neither scaled nor capped
 *   rope=interleaved or rope=half       rotates elements (2 i, 2 i + 1) or (i, i + rope_dim / 2)
 *   rope_dim=64              left out: all of head_dim
 *   blocks=128:64            a block mask: a query sees a key only if its block, of so many queries
 *                            and keys, is among those that lists of a run name; each 16, 32, 64 or
 *                            128, or one number for both
 *   mask_heads=1             heads with a mask of their own: 1, num_heads_kv or num_heads_q
 *   mask_batch=1             sequences with a mask of their own: 1 or batch
 *   mask_bits                partial blocks have a bit for each pair
 *   density=0.4              about the share of blocks that is present: for estimates and tuning
 *   alignment=16             bytes that divide every address and stride: 2, 4, 8 or 16; at most 8
 *                            where a stride of q, k or v is negative or 2^40 bytes or more
 */
typedef struct attnforge_problem attnforge_problem;

/* ATTNFORGE_ERR_INVALID names the word, its value and what is allowed. */
ATTNFORGE_API attnforge_status attnforge_problem_create(const char* text,
                                                        attnforge_problem** problem);
ATTNFORGE_API void attnforge_problem_destroy(attnforge_problem* problem);

/* What may differ from one step of an engine to the next. */
typedef struct attnforge_sizes {
  uint32_t struct_size;
  int64_t batch;
  int64_t seqlen_q;
  int64_t seqlen_kv;
  int64_t tokens_q; /* lengths=packed: 0: batch * seqlen; else 0 */
  int64_t tokens_kv;
} attnforge_sizes;

#define ATTNFORGE_SIZES_INIT \
  { (uint32_t)sizeof(attnforge_sizes), 1, 1, 1, 0, 0 }

/* The same problem with other sizes (a mask_batch above 1 follows batch), well below a microsecond
 * and without memory. A call that fails leaves the problem as it was; plans made of it stay as they
 * are. Not while others use the handle.
 */
ATTNFORGE_API attnforge_status attnforge_problem_set_sizes(attnforge_problem* problem,
                                                           const attnforge_sizes* sizes);
/* Writes the canonical text, from which attnforge_problem_create makes the same problem, and a 0 to
 * `buffer`, cut short if `capacity` is too small; *length (may be NULL) is what the whole text
 * needs without the 0. `buffer` may be NULL if capacity is 0. */
ATTNFORGE_API attnforge_status attnforge_problem_format(const attnforge_problem* problem,
                                                        char* buffer, size_t capacity,
                                                        size_t* length);

/* ---- Contexts ---- */

/* One GPU, its database and its loaded kernels. */
typedef struct attnforge_context attnforge_context;

enum {
  ATTNFORGE_LOG_DEBUG = 0,
  ATTNFORGE_LOG_INFO = 1,
  ATTNFORGE_LOG_WARNING = 2,
  ATTNFORGE_LOG_ERROR = 3
};
typedef void (*attnforge_log_function)(void* user, int32_t level, const char* message);

enum {
  ATTNFORGE_NO_JIT = 1,         /* nothing is compiled or tuned: ATTNFORGE_ERR_NOT_READY */
  ATTNFORGE_READ_ONLY_CACHE = 2 /* the database is not written */
};

typedef struct attnforge_context_desc {
  uint32_t struct_size;
  uint32_t flags; /* ATTNFORGE_NO_JIT | ... */
  int32_t device; /* CUDA ordinal */
  /* NULL: open `device`. Else, e.g. "sm_90a": no GPU is opened; the context answers attnforge_query
   * and attnforge_inspect for a typical GPU of that arch, and plans are ATTNFORGE_ERR_NO_DRIVER. */
  const char* arch;
  /* NULL or "": $ATTNFORGE_CACHE, else in the user's cache folder. ":memory:": none on disk. */
  const char* cache_path;
  /* NULL: none. Level from $ATTNFORGE_LOG, else warnings and errors. */
  attnforge_log_function log;
  void* log_user;
} attnforge_context_desc;

#define ATTNFORGE_CONTEXT_DESC_INIT \
  { (uint32_t)sizeof(attnforge_context_desc), 0, 0, NULL, NULL, NULL, NULL }

/* `desc` may be NULL: GPU 0 with the defaults. */
ATTNFORGE_API attnforge_status attnforge_context_create(const attnforge_context_desc* desc,
                                                        attnforge_context** context);
ATTNFORGE_API void attnforge_context_destroy(attnforge_context* context);

/* Whether plans can be made for a problem: ATTNFORGE_OK, ATTNFORGE_ERR_UNSUPPORTED with one reason
 * a kernel family in attnforge_last_error(), or ATTNFORGE_ERR_INVALID. No compile, no GPU work, no
 * database. */
ATTNFORGE_API attnforge_status attnforge_query(const attnforge_context* context,
                                               const attnforge_problem* problem);

/* ---- Plans ---- */

typedef struct attnforge_plan attnforge_plan;

/* How much work the choice of a kernel may take. */
enum {
  ATTNFORGE_POLICY_ESTIMATE = 0,  /* the database's winner, else that of a problem like it, else the
                                   * model's choice: one compile at most */
  ATTNFORGE_POLICY_FIRST_RUN = 1, /* the winner, else tune within time_limit_s */
  ATTNFORGE_POLICY_CACHED_ONLY = 2 /* the winner with its code, else ATTNFORGE_ERR_NOT_READY */
};

typedef struct attnforge_progress {
  uint32_t struct_size;
  int32_t phase; /* 0 compile, 1 verify, 2 measure, 3 final */
  int32_t done;  /* of this phase */
  int32_t total;
  int32_t failed;
  double best_us;    /* 0: none yet */
  double default_us; /* of the untuned choice; 0: not measured yet */
  double elapsed_s;
  double remaining_s;      /* estimate; 0: unknown */
  const char* best_config; /* valid during the call */
} attnforge_progress;
/* Called on the thread that called attnforge. Anything but 0 asks attnforge_tune to stop and keep
 * what is done; the tuning of a first-run plan goes on to its time limit. */
typedef int (*attnforge_progress_function)(void* user, const attnforge_progress* progress);

typedef struct attnforge_plan_options {
  uint32_t struct_size;
  int32_t policy;
  uint32_t flags;                       /* ATTNFORGE_NO_JIT for this plan only */
  double time_limit_s;                  /* of ATTNFORGE_POLICY_FIRST_RUN */
  const char* family;                   /* NULL: any */
  const char* config;                   /* NULL: choose; else exactly this config's text */
  attnforge_progress_function progress; /* of a first-run tuning; NULL: none */
  void* progress_user;
} attnforge_plan_options;

#define ATTNFORGE_PLAN_OPTIONS_INIT                                                                \
  {                                                                                                \
    (uint32_t)sizeof(attnforge_plan_options), ATTNFORGE_POLICY_ESTIMATE, 0, 8.0, NULL, NULL, NULL, \
        NULL                                                                                       \
  }

/* `options` may be NULL. Making a plan again for the same problem, or for other lengths of a bucket
 * already planned, takes microseconds. The kernel stays loaded until the context is destroyed; a
 * plan's own memory is freed when it is destroyed and 4096 others have been made since. */
ATTNFORGE_API attnforge_status attnforge_plan_create(attnforge_context* context,
                                                     const attnforge_problem* problem,
                                                     const attnforge_plan_options* options,
                                                     attnforge_plan** plan);
ATTNFORGE_API void attnforge_plan_destroy(attnforge_plan* plan);

/* Bytes of device memory, aligned to 256, that a run needs: scratch of any content, which plans on
 * one stream may share. 0 but with lengths, with a rope, and where few queries have many keys. With
 * `upper_bound`: what suffices for the same problem and config at every batch and lengths up to
 * these; it never shrinks when one of them grows. NULL: the plan's own sizes. */
ATTNFORGE_API attnforge_status attnforge_plan_workspace(const attnforge_plan* plan,
                                                        const attnforge_sizes* upper_bound,
                                                        size_t* bytes);

/* Texts of a plan; they live as long as the plan. "" for NULL. */
ATTNFORGE_API const char* attnforge_plan_problem(const attnforge_plan* plan);
/* "fwd_mma_sm80 block_m=128 ..." */
ATTNFORGE_API const char* attnforge_plan_config(const attnforge_plan* plan);
/* Where the config came from: "measured", "stale", "near_device", "near_problem", "estimated" or
 * "forced"; attnforge/provenance.h says what each means. */
ATTNFORGE_API const char* attnforge_plan_provenance(const attnforge_plan* plan);
/* 0 where the code of the plan was not measured for its bucket. */
ATTNFORGE_API double attnforge_plan_measured_us(const attnforge_plan* plan);

/* ---- Runs ---- */

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
  /* Needed with the word args: 8 bytes for each of its arguments, in their order, in host memory:
   * the address of an array in device memory, or a number in the first 4 bytes (float, int32_t).
   * With the word dargs, after them, 8 bytes for each of its names: the address of an fp32 array of
   * as many elements, to which a run adds the gradient of the array of that name. Clear it before
   * the first run: no run does. */
  const uint64_t* code_arguments;
  const float* sinks; /* needed with the word sinks: [num_heads_q] logits in device memory */
  const attnforge_pages* pages;         /* needed with the word page_size */
  const attnforge_gradients* gradients; /* needed by bwd */
} attnforge_tensors;

#define ATTNFORGE_TENSORS_INIT                                                              \
  {                                                                                         \
    (uint32_t)sizeof(attnforge_tensors), {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, \
        {NULL, 0, 0, 0}, {NULL, 0, 0}, NULL, NULL, NULL, NULL, NULL, NULL, NULL             \
  }

/* Sets the strides of contiguous tensors in the problem's layout; pointers stay as they are. For
 * layout=packed_qkv, k and v start num_heads_q * head_dim and (num_heads_q + num_heads_kv) *
 * head_dim elements after q. Gradients have the strides of what they are of. */
ATTNFORGE_API attnforge_status attnforge_contiguous_tensors(const attnforge_problem* problem,
                                                            attnforge_tensors* tensors);

/* Enqueues the plan on `stream` (a CUstream or cudaStream_t; NULL: the default stream). With
 * ATTNFORGE_CHECK_INPUTS=1 in the environment lengths and page tables are looked at first, which
 * waits for the stream. */
ATTNFORGE_API attnforge_status attnforge_run(const attnforge_plan* plan,
                                             const attnforge_tensors* tensors, void* workspace,
                                             size_t workspace_bytes, void* stream);

/* ---- Merging ---- */

/* Attention of the same queries to several parts of the keys, which share none (cascades, ring
 * attention, shared prefixes), merged into that to all of them: o of [batch, seqlen, num_heads,
 * head_dim], weighted by exp(lse), lse of [batch, num_heads, seqlen]. A part's row with lse =
 * -infinity has seen no key, and its o is not read; a row that no part has seen a key of gets 0 and
 * -infinity. */
typedef struct attnforge_merge {
  uint32_t struct_size;
  const char* dtype;   /* of the parts' o: "fp32", "fp16" or "bf16" */
  const char* dtype_o; /* of the result's */
  int64_t batch;
  int64_t seqlen;
  int64_t num_heads;
  int64_t head_dim;                /* a multiple of 8 up to 512 */
  int64_t parts;                   /* 1 to 32; results can be merged again */
  const attnforge_tensor* parts_o; /* lists of `parts`, in host memory, read during the call only */
  const attnforge_rows* parts_lse;
  attnforge_tensor o; /* may be a part's, with equal dtypes, and so may lse */
  attnforge_rows lse; /* data NULL: not written */
} attnforge_merge;

#define ATTNFORGE_MERGE_INIT                                                        \
  {                                                                                 \
    (uint32_t)sizeof(attnforge_merge), "fp32", "bf16", 1, 1, 1, 128, 0, NULL, NULL, \
        {NULL, 0, 0, 0}, {                                                          \
      NULL, 0, 0                                                                    \
    }                                                                               \
  }

/* Enqueues it on `stream`. The first call for these dtypes, this head_dim and alignment may compile
 * (ATTNFORGE_NO_JIT: ATTNFORGE_ERR_NOT_READY); later ones only launch, and may be captured. */
ATTNFORGE_API attnforge_status attnforge_merge_states(attnforge_context* context,
                                                      const attnforge_merge* merge, void* stream);

/* ---- Appending ---- */

/* New rows of k and v, which go to a cache: row i of sequence b becomes row used_kv[b] + i of its
 * cache, k, and q where there is one, rotated by the angles of that position. New rows are [batch,
 * seqlen_new, heads, head_dim], or with cu_seqlens packed, [tokens, heads, head_dim]; caches are
 * [batch, seqlen_kv, num_heads_kv, head_dim], or pools of pages. Rows of positions from seqlen_kv
 * on, and those that have no page, are not written. */
typedef struct attnforge_append {
  uint32_t struct_size;
  const char* dtype; /* of all tensors: "fp32", "fp16" or "bf16" */
  int64_t batch;
  int64_t seqlen_new; /* of every sequence; not read with cu_seqlens */
  int64_t tokens;     /* with cu_seqlens: rows of k, v and q */
  int64_t seqlen_kv;  /* rows that a sequence may have in the cache */
  int64_t page_size;  /* rows of a page, a multiple of 8 up to 65536; 0: not in pages */
  int64_t num_heads_kv;
  int64_t num_heads_q; /* of q, with a rope; 0: there is none */
  int64_t head_dim;    /* of k and q: a multiple of 8 up to 512 */
  int64_t head_dim_v;
  const char* rope; /* "none", "interleaved" or "half" */
  int64_t rope_dim; /* 0: all of head_dim */
  attnforge_tensor k;
  attnforge_tensor v;
  attnforge_tensor k_cache;
  attnforge_tensor v_cache;
  attnforge_tensor q;
  attnforge_tensor rotated_q;        /* may be q */
  const attnforge_pages* pages;      /* needed with page_size; both read during the call only */
  const attnforge_rope* rope_tables; /* needed with a rope: position p takes row offset + p */
  const int32_t* cu_seqlens;         /* NULL, or [batch + 1] in device memory */
  const int32_t* used_kv;            /* [batch], rows before; NULL: none */
  int32_t* used_kv_after;            /* [batch], written; may be used_kv; NULL: not written */
} attnforge_append;

#define ATTNFORGE_APPEND_INIT                                                                \
  {                                                                                          \
    (uint32_t)sizeof(attnforge_append), "bf16", 1, 1, 0, 0, 0, 1, 0, 128, 128, "none", 0,    \
        {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, {NULL, 0, 0, 0}, \
        {NULL, 0, 0, 0}, NULL, NULL, NULL, NULL, NULL                                        \
  }

/* Enqueues it on `stream`. Lengths, tables and pages are read on the GPU when it runs: in a CUDA
 * graph they may change between replays, and with used_kv_after = used_kv each replay appends after
 * the last one's rows. The first call for this dtype, these head dims, rope and alignment may
 * compile (ATTNFORGE_NO_JIT: ATTNFORGE_ERR_NOT_READY); later ones only launch, and may be captured.
 * With ATTNFORGE_CHECK_INPUTS=1 lengths and tables are looked at first, which waits. */
ATTNFORGE_API attnforge_status attnforge_append_kv(attnforge_context* context,
                                                   const attnforge_append* append, void* stream);

/* ---- Block masks ---- */

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

/* ---- Tuning and inspection ---- */

enum { ATTNFORGE_RIGOR_QUICK = 0, ATTNFORGE_RIGOR_FULL = 1, ATTNFORGE_RIGOR_EXHAUSTIVE = 2 };

typedef struct attnforge_tune_options {
  uint32_t struct_size;
  int32_t rigor;
  double time_limit_s;     /* 0: none */
  const char* family;      /* NULL: all that serve the problem */
  int32_t compile_threads; /* 0: one per core */
  int32_t retune;          /* 1: measure again what the database already has */
  uint32_t seed;
  attnforge_progress_function progress;
  void* progress_user;
} attnforge_tune_options;

#define ATTNFORGE_TUNE_OPTIONS_INIT \
  { (uint32_t)sizeof(attnforge_tune_options), ATTNFORGE_RIGOR_FULL, 0.0, NULL, 0, 0, 1, NULL, NULL }

/* Searches the configs of the problem's bucket on the GPU and keeps every try in the database.
 * *json receives the result as JSON (docs/JSON.md, "tuned"), to be freed; json may be NULL. Plans
 * made afterwards use the winner, also one of a lower rigor than of a search before, which it was
 * raced against. A search of one family (options.family) decides only for plans that name it; they
 * take the fastest of its tries. Where the database cannot be written, the search goes on and
 * succeeds all the same; "not_kept" says why. `options` may be NULL. */
ATTNFORGE_API attnforge_status attnforge_tune(attnforge_context* context,
                                              const attnforge_problem* problem,
                                              const attnforge_tune_options* options, char** json);

enum { ATTNFORGE_INSPECT_COMPILE = 1, ATTNFORGE_INSPECT_PTX = 2, ATTNFORGE_INSPECT_SASS = 4 };

typedef struct attnforge_inspect_options {
  uint32_t struct_size;
  uint32_t flags;         /* ATTNFORGE_INSPECT_COMPILE | ...; compiling needs NVRTC but no GPU */
  int32_t max_candidates; /* 0: all */
  const char* config;     /* NULL: the one that a plan would use */
  const char* family;     /* NULL: any */
} attnforge_inspect_options;

#define ATTNFORGE_INSPECT_OPTIONS_INIT \
  { (uint32_t)sizeof(attnforge_inspect_options), ATTNFORGE_INSPECT_COMPILE, 0, NULL, NULL }

/* What a problem becomes, hop by hop, as JSON (docs/JSON.md, "inspect"); free it. `options` may be
 * NULL. */
ATTNFORGE_API attnforge_status attnforge_inspect(const attnforge_context* context,
                                                 const attnforge_problem* problem,
                                                 const attnforge_inspect_options* options,
                                                 char** json);

#ifdef __cplusplus
}
#endif

#endif /* ATTNFORGE_C_H */
