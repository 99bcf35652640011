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
 * none, is current, and leave it as it was. Device memory is allocated for code, while tuning, for
 * block masks that are made on a GPU or copied to it, and for counters from which blocks take their
 * work: 32 bytes for each stream, known by its id whatever its handle, and for each captured
 * launch. Streams that are idle or destroyed give theirs back. Of a captured graph only one
 * executable may run at a time.
 *
 * Cost. attnforge_query takes microseconds, and so does attnforge_run, which only launches: it does
 * not synchronise, allocates nothing (but more counters when some thousand streams or captured
 * launches have theirs), may be captured into a CUDA graph, and takes about a microsecond more than
 * the driver's launch. These are the exceptions:
 *   may compile       attnforge_plan_create, functions that make or transpose a block mask on a
 *                     GPU, zeros, weights and mass the first time, and attnforge_inspect where it
 *                     is asked to; a capture comes after these
 *   tunes             attnforge_tune, and attnforge_plan_create unless the policy is another than
 *                     ATTNFORGE_POLICY_FIRST_RUN, the default: once a problem, within 8 s
 *   waits for the GPU functions that make, copy or transpose a block mask on a GPU; with
 *                     ATTNFORGE_CHECK_INPUTS=1 in the environment also runs
 *   opens a GPU       attnforge_context_create: the driver and the database
 * ATTNFORGE_NO_JIT forbids to compile and to tune: what would need it is ATTNFORGE_ERR_NOT_READY
 * with the problem's text, to be tuned beforehand.
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

#include "attnforge/c_tensors.h"

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
 * A problem is made from its text: fwd, or bwd for the gradients of it, and words in any order,
 * e.g. "fwd bf16 batch=1 num_heads=32:8 seqlen=4096 head_dim=128 causal lse".
 *
 * Packed sequences (lengths=packed) lie one after another in tensors without a batch: q [tokens_q,
 * num_heads_q, head_dim] and so on, and lse [num_heads_q, tokens_q]. Arrays of a run say where each
 * begins. Of padded ones (lengths=used) arrays of a run say how many rows count; the others are
 * neither read nor written. bwd reads q, k, v, o, lse and dout, and writes dq, dk and dv (see
 * attnforge_gradients). alignment is at most 8 where a stride of q, k or v is negative or 2^40
 * bytes or more.
 *
 * Words (written by tools/c_words.py from docs/PROBLEM.md). In brackets the values of each, and
 * what holds where it is left out:
 *   bf16             dtype of all tensors [bf16]
 *   fp16             dtype of all tensors [bf16]
 *   fp32             dtype of all tensors; products at fp32 accuracy [bf16]
 *   e4m3             dtype of q, k and v; o is bf16, or what o=DTYPE says [bf16]
 *   q=DTYPE          dtype of q alone [fp32, fp16, bf16 or e4m3; that of all]
 *   k=DTYPE          dtype of k alone [fp32, fp16, bf16, int8, int4, e4m3, e5m2, q8_0 or q4_0; that
 *                    of all]
 *   v=DTYPE          dtype of v alone [fp32, fp16, bf16, int8, int4, e4m3, e5m2, q8_0 or q4_0; that
 *                    of all]
 *   o=DTYPE          dtype of o alone [fp32, fp16 or bf16; that of all]
 *   kv_scale=WHAT    of k and v of 8 or 4 bits, and q of 8: what shares a scale; token: a row of a
 *                    head, groupN: N elements of one [none, tensor, head, token, group32, group64
 *                    or group128; none]
 *   kv_zero          of int4 with scales of rows: a value is number * scale + zero, which lies
 *                    after that [no zero points]
 *   batch=N          sequences [a whole number from 0 to 1048576 (2^20); 1]
 *   num_heads=Q:KV   heads of q and of k and v; one number is both [a whole number from 1 to 65535;
 *                    1]
 *   num_heads_q=N    query heads, a multiple of num_heads_kv [a whole number from 1 to 65535; 1]
 *   num_heads_kv=N   heads of k and v [a whole number from 1 to 65535; num_heads_q]
 *   seqlen=Q:KV      queries and keys of a sequence; one number is both [a whole number from 0 to
 *                    134217728 (2^27); 1]
 *   seqlen_q=N       queries of a sequence; of several lengths, the most [a whole number from 0 to
 *                    134217728 (2^27); 1]
 *   seqlen_kv=N      keys of a sequence; of several lengths, the most [a whole number from 0 to
 *                    134217728 (2^27); seqlen_q]
 *   head_dim=QK:V    elements per head of q and k, and of v and o; one number is both [a multiple
 *                    of 8 from 8 to 512; 64]
 *   head_dim_v=N     elements per head of v and o [a multiple of 8 from 8 to 512; head_dim]
 *   layout=ORDER     of contiguous tensors, by the letters of batch, seqlen, heads, dim; any
 *                    strides may be run [bshd, bhsd or packed_qkv; bshd]
 *   causal           a query sees no key after its position; the last query stands at the last key
 *                    [every key]
 *   window_left=N    keys before its position that a query sees [-1 (open) or a whole number up to
 *                    1073741824 (2^30); -1]
 *   window_right=N   keys after its position that a query sees [-1 (open) or a whole number up to
 *                    1073741824 (2^30); -1]
 *   softcap=X        s becomes X * tanh(s / X) after scaling; 0: no cap [0 or a number from 1e-20
 *                    to 1e20; 0]
 *   lse              lse is written too: fp32, natural logarithm [only o]
 *   tf32             with fp32: products may round their inputs to TF32 [fp32 accuracy]
 *   fast_sums        with e4m3: sums over keys may have the 14 bits of tensor cores [fp32 sums]
 *   softmax_scale=X  multiplier of Q K^T; 0: 1 / sqrt(head_dim) [0 or a number from 1e-20 to 1e20;
 *                    0]
 *   sinks            the softmax of a row counts a logit of its query head, which has no value; a
 *                    run brings them [keys alone]
 *   batch_invariant  the bits of a sequence's result do not depend on what else is in the batch
 *                    [they may]
 *   deterministic    of bwd: equal runs give equal bits [they may differ]
 *   accumulate       of bwd: gradients are added to what dq, dk and dv hold [they are written]
 *   dlse             of bwd: a gradient of lse comes in too [that of o alone]
 *   gradients=DTYPE  of bwd: dtype of dq, dk and dv [same (as q, k and v) or fp32; same]
 *   lengths=KIND     packed: sequences one after another; used: padded, the first rows count. A
 *                    run's arrays on the GPU say how long each is [fixed, packed or used; fixed]
 *   tokens=Q:KV      with lengths=packed: the most rows of q and of k and v; one number is both [0
 *                    (batch * seqlen) or a whole number up to 1073741824 (2^30); 0]
 *   tokens_q=N       the most rows of q and o [0 (batch * seqlen) or a whole number up to
 *                    1073741824 (2^30); 0]
 *   tokens_kv=N      the most rows of k and v [0 (batch * seqlen) or a whole number up to
 *                    1073741824 (2^30); tokens_q]
 *   page_size=N      with lengths=used, or of q alone with lengths=packed: k and v lie in pages of
 *                    so many rows; a run's table on the GPU says which pages a sequence has [0 (no
 *                    pages), 1, 2, 4 or a multiple of 8 up to 65536; 0]
 *   rope=KIND        q and k are rotated first: half, elements i and i + rope_dim / 2; interleaved,
 *                    2 i and 2 i + 1 [none, interleaved or half; none]
 *   rope_dim=N       the first elements of a row that rotate [0 (all) or a multiple of 8 up to
 *                    head_dim; 0]
 *   blocks=Q:KV      a mask of blocks of so many queries and keys: a run's lists say which are
 *                    seen; one number is both [each 16, 32, 64 or 128; no block mask]
 *   mask_block_q=N   queries of a block [0 (no block mask), 16, 32, 64 or 128; 0]
 *   mask_block_kv=N  keys of a block [0 (no block mask), 16, 32, 64 or 128; mask_block_q]
 *   mask_heads=N     heads with a block mask of their own; 1: all share one [1, num_heads_kv or
 *                    num_heads_q; 1]
 *   mask_batch=N     sequences with one of their own; 1: all share [1 or batch; 1]
 *   mask_bits        partial blocks have a bit for each pair [all of a present block]
 *   density=X        about the share of blocks that is present: for estimates and tuning only [0
 *                    (unknown, taken as 0.5) or a number from 1e-06 to 1; 0]
 *   parts=N          of merge: attentions to parts of the keys that become one [a whole number from
 *                    1 to 32; 0]
 *   queries          of append with rope: q is rotated too, and goes to o [k alone]
 *   lengths_after    of append: rows that each sequence has afterwards are written [they are not]
 *   alignment=BYTES  divides every address and stride [2, 4, 8 or 16 (bytes); 16]
 *   args="LIST"      what score and mask may name beside these, given to each run [types and names
 *                    with commas between them, as in float* slope[num_heads_q], int window = 1024;
 *                    none]
 *   score="TEXT"     C++ of what becomes of a score s after scaling, from batch, head, q, k,
 *                    seqlen_q, seqlen_kv and args [an expression in double quotes; s]
 *   mask="TEXT"      C++ of whether query q sees key k, among those that causal and the window let
 *                    it see [an expression in double quotes; true]
 *   dargs="LIST"     of bwd: the arrays of args that get a gradient; a run adds to fp32 arrays
 *                    [names, with commas between them, of arrays of floats that score reads; not
 *                    with deterministic; none]
 * Words that belong together:
 *   q=fp16 and the like win over the dtype for all. tf32 needs fp32 q, k and v.
 *   causal is window_right=0, and takes no other window_right.
 *   layout=packed_qkv needs equal lengths, head dims and dtypes.
 *   tokens needs lengths=packed, rope_dim needs rope. rope does not go with lengths but in append,
 *   nor batch_invariant with blocks.
 *   page_size needs lengths=used, or lengths=packed and tokens_kv=0: then q and o are packed, and k
 *   and v lie in pages, of which a run's lengths.kv says how many rows of each sequence count. It
 *   does not go with blocks or layout=packed_qkv.
 *   k and v of 8 or 4 bits need q in 16, no bwd, and rope in append alone; only they have a
 *   kv_scale, and rows of int4 alone kv_zero.
 *   args needs score or mask (USER_CODE.md). In quotes \", \\ and \n are a quote, a backslash and
 *   the end of a line; a text without blanks needs no quotes, and on a command line the shell's do.
 * (end of the words)
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
/* The problem with lengths and batch rounded, as the database has it: all that round to it share a
 * winner. Not while others use the handle. */
ATTNFORGE_API attnforge_status attnforge_problem_round(attnforge_problem* problem);
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

/* Sets ATTNFORGE_NO_JIT of a context, or with 0 takes it away, from now on. */
ATTNFORGE_API attnforge_status attnforge_context_set_no_jit(attnforge_context* context,
                                                            int32_t no_jit);

/* What a context of a GPU has done for plans so far: to assert that serving compiles nothing and
 * runs nothing that was not tuned. */
typedef struct attnforge_stats {
  uint32_t struct_size;
  uint64_t compiles;      /* by NVRTC, of a search's tries only the winner's */
  uint64_t plans;         /* for problems whose bucket had none yet */
  uint64_t untuned_plans; /* of these, those that ATTNFORGE_POLICY_CACHED_ONLY would have refused */
  uint64_t shipped_plans; /* of these, those that go by a winner that ships */
} attnforge_stats;

#define ATTNFORGE_STATS_INIT \
  { (uint32_t)sizeof(attnforge_stats), 0, 0, 0, 0 }

ATTNFORGE_API attnforge_status attnforge_context_stats(attnforge_context* context,
                                                       attnforge_stats* stats);

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
  ATTNFORGE_POLICY_FIRST_RUN = 1, /* the winner, else tune within time_limit_s, by processes of the
                                   * program attnforge; where it is not installed, ESTIMATE */
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
  void* stream; /* a CUstream: while it is captured into a graph nothing is tuned */
} attnforge_plan_options;

#define ATTNFORGE_PLAN_OPTIONS_INIT                                                           \
  {                                                                                           \
    (uint32_t)sizeof(attnforge_plan_options), ATTNFORGE_POLICY_FIRST_RUN, 0, 8.0, NULL, NULL, \
        NULL, NULL, NULL                                                                      \
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
/* Where the winner was found that it comes from: "database" (of the context), "site"
 * (ATTNFORGE_SITE_CACHE), "shipped" (with the library), or "none". */
ATTNFORGE_API const char* attnforge_plan_layer(const attnforge_plan* plan);
/* 0 where the code of the plan was not measured for its bucket. */
ATTNFORGE_API double attnforge_plan_measured_us(const attnforge_plan* plan);

/* ---- Runs ---- */

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

#ifdef __cplusplus
}
#endif

#include "attnforge/c_block_mask.h"
#include "attnforge/c_tools.h"

#endif /* ATTNFORGE_C_H */
