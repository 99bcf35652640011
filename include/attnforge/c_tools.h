/* c_tools.h - what a program of the C API needs beside plans and runs: tuning, inspection, weights,
 * and the answer of a CPU. A part of attnforge/c.h, which includes it; the opening comment there
 * holds here too.
 */
#ifndef ATTNFORGE_C_TOOLS_H
#define ATTNFORGE_C_TOOLS_H

#include "attnforge/c.h"

#ifdef __cplusplus
extern "C" {
#endif

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

/* ---- Zeros, weights, and what a test compares with ---- */

/* An array in device memory, [pieces, rows, row_bytes] without gaps, of which rows from *begin on,
 * an int in device memory, are to be zeros. Addresses and row_bytes are multiples of 4.
 * Never changes. */
typedef struct attnforge_rest {
  void* data;
  const int32_t* begin;
  int64_t rows;
  int64_t row_bytes;
  int64_t pieces;
} attnforge_rest;

/* Enqueues zeros for what no run writes: rows after the last of packed sequences, where `begin` is
 * the last of their array of lengths. Of up to 8 arrays, in one launch that reads on the GPU how
 * much there is to do. May be captured after a first call. */
ATTNFORGE_API attnforge_status attnforge_clear_rest(attnforge_context* context,
                                                    const attnforge_rest* arrays, size_t count,
                                                    void* stream);

/* What a forward run multiplied v by, exp(s - lse), 0 where a query does not see a key: for
 * `num_rows` queries of each sequence fp32 [batch, num_heads_q, num_rows, seqlen_kv], stride_row
 * between rows, and for each key summed over all queries [batch, num_heads_q, seqlen_kv], in the
 * same order in every run. rows: [num_rows] in device memory, queries from 0, or below 0 from the
 * sequence's end; NULL: the first. `tensors` has q, k and lse of the run, and what the problem's
 * parts need. k has q's dtype, fp32, fp16 or bf16; not with a rope. */
ATTNFORGE_API attnforge_status attnforge_attention_weights(
    attnforge_context* context, const attnforge_problem* problem, const attnforge_tensors* tensors,
    const int32_t* rows, int64_t num_rows, const attnforge_tensor* weights, void* stream);
ATTNFORGE_API attnforge_status attnforge_key_mass(attnforge_context* context,
                                                  const attnforge_problem* problem,
                                                  const attnforge_tensors* tensors,
                                                  const attnforge_rows* mass, void* stream);

/* A tensor in host memory, contiguous in the problem's layout and in its dtype. name: as
 * attnforge/host_tensors.h calls it: "q", "k", "v", "o", "lse", "sinks", "lengths_kv",
 * "page_table", "code_arrays", ... Never changes. */
typedef struct attnforge_host_tensor {
  const char* name;
  void* data;
  size_t bytes;
} attnforge_host_tensor;

/* Computes the problem in fp64 on the CPU, at about 2 GFLOP/s a core, without a GPU: what a test
 * compares with. Every tensor that a run would read or write is among `tensors`; others are
 * ignored. Arguments of code are "code_words", 8 bytes for each: a number, or where the array
 * begins in "code_arrays", a multiple of 256. "rope_offset" is 8 bytes. Rows of outputs that do not
 * count are NaN. ATTNFORGE_ERR_UNSUPPORTED for texts that only a compiler reads. */
ATTNFORGE_API attnforge_status attnforge_solve_on_cpu(const attnforge_problem* problem,
                                                      const attnforge_host_tensor* tensors,
                                                      size_t count);

#ifdef __cplusplus
}
#endif

#endif /* ATTNFORGE_C_TOOLS_H */
