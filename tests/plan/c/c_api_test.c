/* c_api_test.c - the C API from C99: contract, errors and struct sizes without a GPU; a plan and a
 * run where there is one.
 *
 * usage: c_api_test [fake]   `fake`: the driver is tests/support/fake_driver/fake_driver.cpp, which
 * launches nothing */
#define _POSIX_C_SOURCE 200809L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "attnforge/c.h"

static int failures = 0;

#define EXPECT(condition)                                                                \
  do {                                                                                   \
    if (!(condition)) {                                                                  \
      printf("%s:%d: %s is false; last error: \"%s\"\n", __FILE__, __LINE__, #condition, \
             attnforge_last_error());                                                    \
      ++failures;                                                                        \
    }                                                                                    \
  } while (0)

#define EXPECT_ERROR(call, status, text)                                                        \
  do {                                                                                          \
    const attnforge_status got = (call);                                                        \
    if (got != (status) || strstr(attnforge_last_error(), (text)) == NULL) {                    \
      printf("%s:%d: %s gave %s: \"%s\", not %s with \"%s\"\n", __FILE__, __LINE__, #call,      \
             attnforge_status_name(got), attnforge_last_error(), attnforge_status_name(status), \
             (text));                                                                           \
      ++failures;                                                                               \
    }                                                                                           \
  } while (0)

static const char kText[] = "fwd fp16 batch=2 num_heads=4:2 seqlen=96 head_dim=64 causal lse";

/* Sizes and offsets of ABI version 2: a change here breaks programs that are already compiled. */
static void test_struct_layout(void) {
  EXPECT(ATTNFORGE_ABI_VERSION == 2);
  EXPECT(sizeof(attnforge_context_desc) == 48);
  EXPECT(offsetof(attnforge_context_desc, arch) == 16);
  EXPECT(sizeof(attnforge_plan_options) == 64);
  EXPECT(offsetof(attnforge_plan_options, time_limit_s) == 16);
  EXPECT(sizeof(attnforge_progress) == 64);
  EXPECT(sizeof(attnforge_sizes) == 48);
  EXPECT(sizeof(attnforge_tensor) == 32);
  EXPECT(sizeof(attnforge_rows) == 24);
  EXPECT(sizeof(attnforge_rope) == 40);
  EXPECT(sizeof(attnforge_lengths) == 40);
  EXPECT(sizeof(attnforge_state) == 56);
  EXPECT(sizeof(attnforge_pages) == 32);
  EXPECT(sizeof(attnforge_cache) == 80);
  EXPECT(sizeof(attnforge_block_mask_lists) == 40);
  EXPECT(sizeof(attnforge_block_mask_shape) == 48);
  EXPECT(offsetof(attnforge_tensors, block_mask) == 176);
  EXPECT(offsetof(attnforge_tensors, sinks) == 232);
  EXPECT(sizeof(attnforge_gradients) == 168);
  EXPECT(offsetof(attnforge_tensors, o) == 104);
  EXPECT(offsetof(attnforge_tensors, lse) == 136);
  EXPECT(offsetof(attnforge_tensors, rope) == 160); /* parts come after it, a pointer each */
  EXPECT(sizeof(attnforge_tune_options) == 56);
  EXPECT(sizeof(attnforge_inspect_options) == 32);
}

/* The handle of a text; NULL, counted as a failure, if it is refused. */
static attnforge_problem* made(const char* text) {
  attnforge_problem* problem = NULL;
  EXPECT(attnforge_problem_create(text, &problem) == ATTNFORGE_OK && problem != NULL);
  return problem;
}

/* In one static buffer. */
static const char* text_of(const attnforge_problem* problem) {
  static char text[512];
  EXPECT(attnforge_problem_format(problem, text, sizeof text, NULL) == ATTNFORGE_OK);
  return text;
}

static void test_versions(void) {
  EXPECT(attnforge_abi_version() == ATTNFORGE_ABI_VERSION);
  EXPECT(strlen(attnforge_version()) >= 5);
  EXPECT(strcmp(attnforge_status_name(ATTNFORGE_OK), "ok") == 0);
  EXPECT(strcmp(attnforge_status_name(ATTNFORGE_ERR_NOT_READY), "not_ready") == 0);
  EXPECT(strcmp(attnforge_status_name((attnforge_status)99), "unknown") == 0);
  attnforge_free_string(NULL);
  attnforge_plan_destroy(NULL);
  attnforge_problem_destroy(NULL);
  attnforge_context_destroy(NULL);
  EXPECT(strcmp(attnforge_plan_config(NULL), "") == 0);
}

static void test_problems(void) {
  attnforge_problem* problem = made(kText);
  attnforge_problem* again = NULL;
  char text[512];
  char cut[9];
  size_t length = 0;
  EXPECT(attnforge_problem_format(problem, text, sizeof text, &length) == ATTNFORGE_OK);
  EXPECT(length == strlen(text));
  EXPECT(strcmp(text,
                "fwd fp16 batch=2 num_heads_q=4 num_heads_kv=2 seqlen_q=96 seqlen_kv=96 "
                "head_dim=64 head_dim_v=64 causal lse") == 0);
  again = made(text);
  EXPECT(strcmp(text_of(again), text) == 0);
  attnforge_problem_destroy(again);

  EXPECT(attnforge_problem_format(problem, NULL, 0, &length) == ATTNFORGE_OK);
  EXPECT(length == strlen(text));
  EXPECT(attnforge_problem_format(problem, cut, sizeof cut, NULL) == ATTNFORGE_OK);
  EXPECT(strlen(cut) == sizeof cut - 1 && strncmp(cut, text, sizeof cut - 1) == 0);
  EXPECT_ERROR(attnforge_problem_format(problem, NULL, 5, NULL), ATTNFORGE_ERR_INVALID,
               "buffer is NULL");
  attnforge_problem_destroy(problem);

  EXPECT_ERROR(attnforge_problem_create("fwd bf16 head_dim=60", &problem), ATTNFORGE_ERR_INVALID,
               "head_dim");
  EXPECT(problem == NULL);
  EXPECT_ERROR(attnforge_problem_create(NULL, &problem), ATTNFORGE_ERR_INVALID, "text is NULL");
  EXPECT_ERROR(attnforge_problem_create(kText, NULL), ATTNFORGE_ERR_INVALID, "problem is NULL");
}

static void test_sizes(void) {
  attnforge_problem* problem = made(kText);
  attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  sizes.batch = 3;
  sizes.seqlen_q = 1;
  sizes.seqlen_kv = 0;
  EXPECT(attnforge_problem_set_sizes(problem, &sizes) == ATTNFORGE_OK);
  EXPECT(strcmp(text_of(problem),
                "fwd fp16 batch=3 num_heads_q=4 num_heads_kv=2 seqlen_q=1 seqlen_kv=0 "
                "head_dim=64 head_dim_v=64 causal lse") == 0);
  sizes.batch = 4;
  sizes.seqlen_kv = -1;
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, &sizes), ATTNFORGE_ERR_INVALID, "seqlen_kv=-1");
  EXPECT(strstr(text_of(problem), " batch=3 ") != NULL); /* a call that fails changes nothing */
  sizes.seqlen_kv = 1;
  sizes.tokens_q = 2;
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, &sizes), ATTNFORGE_ERR_INVALID, "tokens_q=2");
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, NULL), ATTNFORGE_ERR_INVALID, "sizes is NULL");
  EXPECT_ERROR(attnforge_problem_set_sizes(NULL, &sizes), ATTNFORGE_ERR_INVALID, "problem is NULL");
  attnforge_problem_destroy(problem);

  problem = made("fwd bf16 batch=4 seqlen=100 head_dim=64 lengths=packed tokens=150:300");
  sizes.batch = 9;
  sizes.seqlen_q = sizes.seqlen_kv = 64;
  sizes.tokens_q = 500;
  sizes.tokens_kv = 0;
  EXPECT(attnforge_problem_set_sizes(problem, &sizes) == ATTNFORGE_OK);
  EXPECT(strstr(text_of(problem), " batch=9 ") != NULL);
  EXPECT(strstr(text_of(problem), " lengths=packed tokens_q=500 tokens_kv=0") != NULL);
  sizes.tokens_kv = 9 * 64 + 1;
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, &sizes), ATTNFORGE_ERR_INVALID,
               "tokens_kv=577");
  attnforge_problem_destroy(problem);
}

/* Whatever is wrong with a handle that is not of its kind is said and not followed. */
static void test_handles_of_another_kind(void) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(kText);
  attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_plan* plan = NULL;
  size_t bytes = 0;
  char* json = NULL;
  desc.arch = "86";
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_query((attnforge_context*)problem, problem), ATTNFORGE_ERR_INVALID,
               "context is not an attnforge_context");
  EXPECT_ERROR(attnforge_query(context, (attnforge_problem*)context), ATTNFORGE_ERR_INVALID,
               "problem is not an attnforge_problem");
  EXPECT_ERROR(attnforge_query(context, NULL), ATTNFORGE_ERR_INVALID, "problem is NULL");
  EXPECT_ERROR(attnforge_problem_set_sizes((attnforge_problem*)context, &sizes),
               ATTNFORGE_ERR_INVALID, "problem is not an attnforge_problem");
  EXPECT_ERROR(attnforge_contiguous_tensors((attnforge_problem*)context, &tensors),
               ATTNFORGE_ERR_INVALID, "problem is not an attnforge_problem");
  EXPECT_ERROR(attnforge_plan_create((attnforge_context*)problem, problem, NULL, &plan),
               ATTNFORGE_ERR_INVALID, "context is not an attnforge_context");
  EXPECT_ERROR(attnforge_tune(context, (attnforge_problem*)context, NULL, NULL),
               ATTNFORGE_ERR_INVALID, "problem is not an attnforge_problem");
  EXPECT_ERROR(attnforge_inspect((attnforge_context*)problem, problem, NULL, &json),
               ATTNFORGE_ERR_INVALID, "context is not an attnforge_context");
  EXPECT_ERROR(attnforge_run((attnforge_plan*)problem, &tensors, NULL, 0, NULL),
               ATTNFORGE_ERR_INVALID, "plan is not an attnforge_plan");
  EXPECT_ERROR(attnforge_plan_workspace((attnforge_plan*)context, NULL, &bytes),
               ATTNFORGE_ERR_INVALID, "plan is not an attnforge_plan");
  EXPECT(strcmp(attnforge_plan_problem((attnforge_plan*)problem), "") == 0);
  attnforge_plan_destroy((attnforge_plan*)problem); /* nothing */
  attnforge_problem_destroy((attnforge_problem*)context);
  EXPECT(attnforge_query(context, problem) == ATTNFORGE_OK);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* A caller compiled with a later header, and one with a broken struct. */
static void test_struct_sizes(void) {
  struct {
    attnforge_sizes known;
    int64_t later[2];
  } newer = {ATTNFORGE_SIZES_INIT, {0, 0}};
  struct {
    attnforge_tensors known;
    const void* later;
  } parts = {ATTNFORGE_TENSORS_INIT, NULL};
  attnforge_problem* problem = made(kText);
  newer.known.struct_size = (uint32_t)sizeof newer;
  EXPECT(attnforge_problem_set_sizes(problem, &newer.known) == ATTNFORGE_OK);
  newer.later[1] = 5;
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, &newer.known), ATTNFORGE_ERR_INVALID, "newer");
  newer.later[1] = 0;
  newer.known.struct_size = 4;
  EXPECT_ERROR(attnforge_problem_set_sizes(problem, &newer.known), ATTNFORGE_ERR_INVALID,
               "struct_size");
  parts.known.struct_size = (uint32_t)sizeof parts;
  EXPECT(attnforge_contiguous_tensors(problem, &parts.known) == ATTNFORGE_OK);
  EXPECT(parts.known.struct_size == sizeof parts && parts.known.q.stride_row == 4 * 64);
  parts.known.struct_size = 176; /* of a caller that knows no block masks */
  EXPECT(attnforge_contiguous_tensors(problem, &parts.known) == ATTNFORGE_OK);
  parts.known.struct_size = (uint32_t)sizeof parts;
  parts.later = &parts; /* a part of a newer library is not left out in silence */
  EXPECT_ERROR(attnforge_contiguous_tensors(problem, &parts.known), ATTNFORGE_ERR_INVALID, "newer");
  attnforge_problem_destroy(problem);
}

static void test_block_masks(void) {
  attnforge_block_mask_shape shape = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
  attnforge_block_mask_info info = ATTNFORGE_BLOCK_MASK_INFO_INIT;
  attnforge_block_mask* mask = NULL;
  const int32_t row_begin[] = {0, 1, 3}, indices[] = {1, 0, 1}, falling[] = {1, 1, 0};
  const uint8_t partial[] = {0, 1, 0};
  const int64_t lengths[] = {64, 36};
  uint8_t seen[100 * 100];
  char* text = NULL;
  shape.block_q = shape.block_kv = 64;
  shape.seqlen_q = shape.seqlen_kv = 100;
  EXPECT(attnforge_block_mask_from_bsr(&shape, row_begin, 3, indices, 3, partial, NULL, 0, NULL,
                                       &mask) == ATTNFORGE_OK);
  EXPECT(attnforge_block_mask_get(mask, &info) == ATTNFORGE_OK);
  EXPECT(info.blocks == 4 && info.full == 2 && info.partial == 1);
  EXPECT(info.row_begin_count == 3 && info.columns_count == 3 && info.bits_count == 0);
  EXPECT(info.columns[0] == 2 && info.columns[1] == 1 && info.columns[2] == 2);
  EXPECT(info.bits == NULL && info.bit_blocks == NULL);
  EXPECT(attnforge_block_mask_words(mask, &text) == ATTNFORGE_OK);
  EXPECT(strcmp(text, "blocks=64:64 density=0.75") == 0);
  attnforge_free_string(text);
  EXPECT(attnforge_block_mask_draw(mask, 0, 0, 0, &text) == ATTNFORGE_OK);
  EXPECT(strcmp(text, " #\n+#\n") == 0);
  attnforge_free_string(text);
  EXPECT_ERROR(attnforge_block_mask_draw(mask, 1, 0, 1, &text), ATTNFORGE_ERR_INVALID, "head 1");
  attnforge_block_mask_destroy(mask);

  EXPECT_ERROR(
      attnforge_block_mask_from_bsr(&shape, row_begin, 3, falling, 3, NULL, NULL, 0, NULL, &mask),
      ATTNFORGE_ERR_INVALID, "indices[2] of row 1 is block column 0 after 1");
  EXPECT(mask == NULL);
  EXPECT_ERROR(
      attnforge_block_mask_from_bsr(&shape, row_begin, 3, NULL, 3, NULL, NULL, 0, NULL, &mask),
      ATTNFORGE_ERR_INVALID, "indices is NULL, but has 3 entries");
  EXPECT_ERROR(attnforge_block_mask_random(&shape, 0.5, 1, NULL), ATTNFORGE_ERR_INVALID, "mask");
  memset(seen, 0, sizeof seen);
  seen[0] = 1;
  EXPECT(attnforge_block_mask_from_dense(&shape, seen, sizeof seen, &mask) == ATTNFORGE_OK);
  EXPECT(attnforge_block_mask_get(mask, &info) == ATTNFORGE_OK);
  EXPECT(info.partial == 1 && info.bits_count == 64 * 2 && info.bits[0] == 1);
  attnforge_block_mask_destroy(mask);
  EXPECT(attnforge_block_mask_random(&shape, 0, 1, &mask) == ATTNFORGE_OK);
  attnforge_block_mask_destroy(mask);
  EXPECT(attnforge_block_mask_window(&shape, 0, 10, 0, &mask) == ATTNFORGE_OK);
  attnforge_block_mask_destroy(mask);
  EXPECT(attnforge_block_mask_strided(&shape, 1, 2, &mask) == ATTNFORGE_OK);
  attnforge_block_mask_destroy(mask);
  EXPECT(attnforge_block_mask_documents(&shape, lengths, 2, &mask) == ATTNFORGE_OK);
  EXPECT(attnforge_block_mask_get(mask, &info) == ATTNFORGE_OK);
  EXPECT(info.full == 2 && info.partial == 0);
  attnforge_block_mask_destroy(mask);
}

static void test_query_and_inspect(void) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(kText);
  attnforge_inspect_options options = ATTNFORGE_INSPECT_OPTIONS_INIT;
  attnforge_plan* plan = (attnforge_plan*)&options;
  char* json = NULL;
  desc.arch = "86";
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT(context != NULL);
  EXPECT(attnforge_query(context, problem) == ATTNFORGE_OK);
  EXPECT(strcmp(attnforge_last_error(), "") == 0);
  EXPECT_ERROR(attnforge_query(NULL, problem), ATTNFORGE_ERR_INVALID, "context is NULL");

  options.flags = 0; /* no compile: no NVRTC needed */
  options.max_candidates = 3;
  EXPECT(attnforge_inspect(context, problem, &options, &json) == ATTNFORGE_OK);
  EXPECT(json != NULL && json[0] == '{' && strstr(json, "\"candidates\"") != NULL);
  attnforge_free_string(json);
  json = NULL;
  options.flags = 1u << 30;
  EXPECT_ERROR(attnforge_inspect(context, problem, &options, &json), ATTNFORGE_ERR_INVALID,
               "options.flags");
  EXPECT(json == NULL);

  EXPECT_ERROR(attnforge_plan_create(context, problem, NULL, &plan), ATTNFORGE_ERR_NO_DRIVER, "86");
  EXPECT(plan == NULL);
  EXPECT_ERROR(attnforge_tune(context, problem, NULL, NULL), ATTNFORGE_ERR_NO_DRIVER, "86");
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);

  desc.arch = "nonsense";
  EXPECT_ERROR(attnforge_context_create(&desc, &context), ATTNFORGE_ERR_INVALID, "nonsense");
  EXPECT(context == NULL);
  desc.arch = "90a";
  desc.flags = 1u << 20;
  EXPECT_ERROR(attnforge_context_create(&desc, &context), ATTNFORGE_ERR_INVALID, "desc.flags");
}

static void test_contiguous(void) {
  attnforge_problem* problem = made(kText);
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_rope rope = ATTNFORGE_ROPE_INIT;
  tensors.q.data = &problem;
  tensors.rope = &rope;
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  EXPECT(tensors.q.data == &problem && tensors.rope == &rope); /* pointers stay */
  EXPECT(tensors.q.stride_row == 4 * 64 && tensors.q.stride_head == 64);
  EXPECT(tensors.k.stride_batch == 96 * 2 * 64);
  EXPECT(tensors.lse.stride_batch == 4 * 96 && tensors.lse.stride_head == 96);
  attnforge_problem_destroy(problem);
}

/* ---- With a driver ---- */

/* Device memory by the driver itself: attnforge allocates none for its callers. */
typedef int (*allocate_function)(unsigned long long*, size_t);
typedef int (*copy_in_function)(unsigned long long, const void*, size_t);
typedef int (*copy_out_function)(void*, unsigned long long, size_t);
typedef int (*context_function)(void*);
typedef int (*retain_function)(void**, int);

/* ISO C has no conversion from void* to a function pointer; POSIX promises that the bits are the
 * same. */
static int find(void* library, const char* name, void* function) {
  void* symbol = dlsym(library, name);
  memcpy(function, &symbol, sizeof symbol);
  return symbol != NULL;
}

static void* device_array(void* library, int fake, size_t count, unsigned short value) {
  static unsigned long long next_fake = 0x1000000;
  allocate_function allocate = NULL;
  copy_in_function copy_in = NULL;
  unsigned long long address = 0;
  unsigned short* host;
  size_t i;
  if (fake) {
    next_fake += 0x1000000;
    return (void*)(uintptr_t)next_fake;
  }
  if (!find(library, "cuMemAlloc_v2", &allocate) || !find(library, "cuMemcpyHtoD_v2", &copy_in))
    return NULL;
  host = (unsigned short*)malloc(count * sizeof *host);
  if (host == NULL) return NULL;
  for (i = 0; i < count; ++i) host[i] = value;
  if (allocate(&address, count * sizeof *host) != 0 ||
      copy_in(address, host, count * sizeof *host) != 0)
    address = 0;
  free(host);
  return (void*)(uintptr_t)address;
}

static void count_messages(void* user, int32_t level, const char* message) {
  (void)level;
  (void)message;
  ++*(int*)user;
}

/* One query that sees two keys of equal scores: the mean of their values. */
static void test_reference(void) {
  attnforge_problem* problem = NULL;
  float q[8] = {0}, k[16] = {0}, v[16], o[8], lse[1];
  attnforge_host_tensor tensors[5] = {{"q", q, sizeof q},
                                      {"k", k, sizeof k},
                                      {"v", v, sizeof v},
                                      {"o", o, sizeof o},
                                      {"lse", lse, sizeof lse}};
  int i;
  for (i = 0; i < 16; ++i) v[i] = (float)i;
  EXPECT(attnforge_problem_create("fwd fp32 seqlen=1:2 head_dim=8 lse", &problem) == ATTNFORGE_OK);
  EXPECT(attnforge_solve_on_cpu(problem, tensors, 5) == ATTNFORGE_OK);
  for (i = 0; i < 8; ++i) EXPECT(o[i] == (float)i + 4);
  EXPECT(lse[0] > 0.693f && lse[0] < 0.694f);
  EXPECT_ERROR(attnforge_solve_on_cpu(problem, tensors, 4), ATTNFORGE_ERR_INVALID,
               "have no \"lse\"");
  tensors[1].bytes = 8;
  EXPECT_ERROR(attnforge_solve_on_cpu(problem, tensors, 5), ATTNFORGE_ERR_INVALID,
               "host tensor k has 8 bytes");
  tensors[1].bytes = sizeof k;
  tensors[3].bytes = 4;
  EXPECT_ERROR(attnforge_solve_on_cpu(problem, tensors, 5), ATTNFORGE_ERR_INVALID,
               "host tensor o has 4 bytes; it must have 32");
  tensors[3].data = NULL;
  EXPECT_ERROR(attnforge_solve_on_cpu(problem, tensors, 5), ATTNFORGE_ERR_INVALID, "o is NULL");
  EXPECT_ERROR(attnforge_solve_on_cpu(problem, NULL, 5), ATTNFORGE_ERR_INVALID, "tensors is NULL");
  EXPECT_ERROR(attnforge_solve_on_cpu(NULL, tensors, 5), ATTNFORGE_ERR_INVALID, "problem");
  attnforge_problem_destroy(problem);
}

static void test_no_jit(void) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made("fwd bf16 seqlen=128 head_dim=72");
  attnforge_plan* plan = NULL;
  desc.cache_path = ":memory:";
  desc.flags = ATTNFORGE_NO_JIT;
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_plan_create(context, problem, NULL, &plan), ATTNFORGE_ERR_NOT_READY,
               "head_dim=72");
  EXPECT(plan == NULL);
  EXPECT(attnforge_context_set_no_jit(context, 0) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  attnforge_plan_destroy(plan);
  EXPECT_ERROR(attnforge_context_set_no_jit(NULL, 1), ATTNFORGE_ERR_INVALID, "context is NULL");
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* A zero or a huge number in a config ended the process. */
static void test_hostile_configs(void) {
  static const char* const kFields[] = {
      "block_m=", "block_n=", "num_warps=", "num_threads=", "stages=", "pack_gqa="};
  static const char* const kValues[] = {"0", "-1", "1073741824", "2147483647", "-2147483648"};
  static const char* const kFamilies[] = {"fwd_naive", "fwd_materialized", "fwd_flash_vec",
                                          "fwd_mma_sm80"};
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_plan_options options = ATTNFORGE_PLAN_OPTIONS_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(kText);
  attnforge_plan *plan = NULL, *other = NULL;
  int refused = 0;
  size_t f, i, j;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  for (f = 0; f < sizeof kFamilies / sizeof *kFamilies; ++f) {
    options.config = NULL;
    options.family = kFamilies[f];
    EXPECT(attnforge_plan_create(context, problem, &options, &plan) == ATTNFORGE_OK);
    if (plan == NULL) continue;
    options.family = NULL;
    for (i = 0; i < sizeof kFields / sizeof *kFields; ++i) {
      const char* const config = attnforge_plan_config(plan);
      const char* const at = strstr(config, kFields[i]);
      if (at == NULL || at[-1] != ' ') continue;
      for (j = 0; j < sizeof kValues / sizeof *kValues; ++j) {
        char changed[1024];
        const char* const rest = strchr(at, ' ');
        snprintf(changed, sizeof changed, "%.*s%s%s%s", (int)(at - config), config, kFields[i],
                 kValues[j], rest != NULL ? rest : "");
        options.config = changed;
        EXPECT_ERROR(attnforge_plan_create(context, problem, &options, &other),
                     ATTNFORGE_ERR_INVALID, " must be ");
        ++refused;
      }
    }
    attnforge_plan_destroy(plan);
  }
  EXPECT(refused >= 60);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* With q = 0 every visible key has the same weight and o is the mean of v: 1 where v is 1. */
static void test_run(void* library, int fake) {
  enum { kElements = 2 * 96 * 4 * 64, kRows = 2 * 4 * 96 };
  const unsigned short kOne = 0x3c00; /* 1.0 in fp16 */
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(kText);
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_rope rope = ATTNFORGE_ROPE_INIT;
  attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  retain_function retain = NULL;
  context_function make_current = NULL;
  copy_out_function copy_out = NULL;
  void* primary = NULL;
  size_t own = 1, bound = 0;
  attnforge_tune_options tuning = ATTNFORGE_TUNE_OPTIONS_INIT;
  int messages = 0;
  static unsigned short o[kElements];
  size_t bytes = 0, i;
  void* workspace;

  if (!fake) {
    EXPECT(find(library, "cuDevicePrimaryCtxRetain", &retain) && retain(&primary, 0) == 0);
    EXPECT(find(library, "cuCtxSetCurrent", &make_current) && make_current(primary) == 0);
    EXPECT(find(library, "cuMemcpyDtoH_v2", &copy_out));
  }
  desc.cache_path = ":memory:";
  desc.log = count_messages;
  desc.log_user = &messages;
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  tuning.compile_threads = -5;
  EXPECT_ERROR(attnforge_tune(context, problem, &tuning, NULL), ATTNFORGE_ERR_INVALID,
               "compile_threads=-5");
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  if (plan == NULL) return;
  EXPECT(strcmp(attnforge_plan_provenance(plan), "estimated") == 0);
  EXPECT(strlen(attnforge_plan_config(plan)) > 0 && attnforge_plan_measured_us(plan) == 0.0);
  EXPECT(strstr(attnforge_plan_problem(plan), "head_dim=64") != NULL);

  EXPECT(attnforge_plan_workspace(plan, NULL, &own) == ATTNFORGE_OK);
  sizes.batch = 64;
  sizes.seqlen_q = sizes.seqlen_kv = 65536;
  EXPECT(attnforge_plan_workspace(plan, &sizes, &bound) == ATTNFORGE_OK);
  EXPECT(bound >= own && own <= 4096);

  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "tensor q is null");
  tensors.q.data = device_array(library, fake, kElements, 0);
  tensors.k.data = device_array(library, fake, kElements, kOne);
  tensors.v.data = device_array(library, fake, kElements, kOne);
  tensors.o.data = device_array(library, fake, kElements, 0xffff); /* NaN */
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID, "lse is null");
  tensors.lse.data = (float*)device_array(library, fake, 2 * kRows, 0xffff);
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  if (!fake) {
    EXPECT(copy_out(o, (unsigned long long)(uintptr_t)tensors.o.data, sizeof o) == 0);
    for (i = 0; i < kElements && o[i] == kOne; ++i) continue;
    EXPECT(i == kElements);
  }
  attnforge_plan_destroy(plan);

  attnforge_problem_destroy(problem);
  problem = made("fwd fp16 batch=2 num_heads=4:2 seqlen=96 head_dim=64 causal lse rope=half");
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_workspace(plan, NULL, &bytes) == ATTNFORGE_OK && bytes > 0);
  workspace = device_array(library, fake, bytes / 2, 0xffff); /* rotated q and k */
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "rope_cos is null");
  rope.cos = (float*)device_array(library, fake, 2 * 100 * 32, 0);
  rope.sin = (float*)device_array(library, fake, 2 * 100 * 32, 0);
  rope.rows = 100;
  rope.offset = 5;
  tensors.rope = &rope;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "rows 5 to 100");
  rope.offset = 4;
  rope.struct_size = 8;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "tensors.rope.struct_size is 8");
  rope.struct_size = (uint32_t)sizeof rope;
  EXPECT(attnforge_run(plan, &tensors, workspace, bytes, NULL) == ATTNFORGE_OK);
  if (!fake) {
    EXPECT(copy_out(o, (unsigned long long)(uintptr_t)tensors.o.data, sizeof o) == 0);
    for (i = 0; i < kElements && o[i] == kOne; ++i) continue;
    EXPECT(i == kElements);
  }
  attnforge_problem_destroy(problem);
  attnforge_plan_destroy(plan);
  attnforge_context_destroy(context);
}

/* Two sequences of 96 and 40 rows one after another; rows after the second stay as they are. */
static void test_packed_run(void* library, int fake) {
  enum { kTokens = 150, kEnd = 136, kElements = kTokens * 4 * 64 };
  const unsigned short kOne = 0x3c00; /* 1.0 in fp16 */
  const int ends[3] = {0, 96, kEnd};
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(
      "fwd fp16 batch=2 num_heads=4:2 seqlen=96 head_dim=64 causal lengths=packed tokens=160 "
      "mask=\"k % 2 == 0 || k == q\""); /* whose key lists take a workspace */
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_lengths lengths = ATTNFORGE_LENGTHS_INIT;
  attnforge_sizes sizes = ATTNFORGE_SIZES_INIT;
  copy_in_function copy_in = NULL;
  copy_out_function copy_out = NULL;
  static unsigned short o[kElements];
  size_t bytes = 0, bound = 0, i;
  void* workspace;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  if (plan == NULL) return;
  EXPECT(attnforge_plan_workspace(plan, NULL, &bytes) == ATTNFORGE_OK && bytes > 0);
  sizes.batch = 2;
  sizes.seqlen_q = sizes.seqlen_kv = 96;
  EXPECT(attnforge_plan_workspace(plan, &sizes, &bound) == ATTNFORGE_OK && bound >= bytes);

  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  EXPECT(tensors.q.stride_row == 4 * 64 && tensors.k.stride_row == 2 * 64);
  tensors.q.data = device_array(library, fake, kElements, 0);
  tensors.k.data = device_array(library, fake, kElements / 2, kOne);
  tensors.v.data = device_array(library, fake, kElements / 2, kOne);
  tensors.o.data = device_array(library, fake, kElements, 0xffff); /* NaN */
  workspace = device_array(library, fake, bytes / 2, 0xffff);
  lengths.q = lengths.kv = (int32_t*)device_array(library, fake, 6, 0);
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "lengths.q is null");
  tensors.lengths = &lengths;
  lengths.tokens_q = 161;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "tokens_q=161");
  lengths.tokens_q = lengths.tokens_kv = kTokens;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_WORKSPACE, "bytes");
  if (!fake) {
    EXPECT(find(library, "cuMemcpyHtoD_v2", &copy_in));
    EXPECT(copy_in((unsigned long long)(uintptr_t)lengths.q, ends, sizeof ends) == 0);
  }
  EXPECT(attnforge_run(plan, &tensors, workspace, bytes, NULL) == ATTNFORGE_OK);
  if (!fake) {
    EXPECT(find(library, "cuMemcpyDtoH_v2", &copy_out));
    EXPECT(copy_out(o, (unsigned long long)(uintptr_t)tensors.o.data, sizeof o) == 0);
    for (i = 0; i < kElements && o[i] == (i < kEnd * 4 * 64 ? kOne : 0xffff); ++i) continue;
    EXPECT(i == kElements);
  }
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* Score code with a number and an array. */
static void test_run_of_code(void* library, int fake) {
  enum { kElements = 2 * 96 * 4 * 64 };
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(
      "fwd fp16 batch=2 num_heads=4 seqlen=96 head_dim=64 args=\"int factor, float* bias[1]\" "
      "score=\"s * factor + bias[0]\"");
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  uint64_t words[2] = {2, 0};
  EXPECT(strstr(text_of(problem),
                " args=\"int factor, float* bias[1]\" score=\"s * factor + bias[0]\"") != NULL);
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  if (plan == NULL) return;
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  tensors.q.data = device_array(library, fake, kElements, 0);
  tensors.k.data = tensors.v.data = tensors.q.data;
  tensors.o.data = device_array(library, fake, kElements, 0);
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "code_arguments is null");
  tensors.code_arguments = words;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "code_arguments[1] is null; it is the address of bias, an array of float");
  words[1] = (uint64_t)(uintptr_t)device_array(library, fake, 2, 0);
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* Blocks that the GPU finds of a text; a fake one computes nothing and finds none. */
static void test_block_masks_on_gpu(int fake) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_block_mask_shape shape = ATTNFORGE_BLOCK_MASK_SHAPE_INIT;
  attnforge_block_mask_info info = ATTNFORGE_BLOCK_MASK_INFO_INIT;
  attnforge_block_mask_lists lists = ATTNFORGE_BLOCK_MASK_LISTS_INIT;
  attnforge_context* context = NULL;
  attnforge_block_mask *mask = NULL, *columns = NULL, *in_host = NULL;
  attnforge_problem* problem = made(
      "fwd bf16 seqlen=128 head_dim=64 blocks=64:32 mask_bits args=\"int ahead\" "
      "mask=\"k <= q + ahead\"");
  const uint64_t words[1] = {0};
  char* text = NULL;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_block_mask_from_text(context, problem, NULL, NULL, &mask),
               ATTNFORGE_ERR_INVALID, "code_arguments is null");
  EXPECT(mask == NULL);
  EXPECT_ERROR(attnforge_block_mask_from_text(NULL, problem, words, NULL, &mask),
               ATTNFORGE_ERR_INVALID, "context is NULL");
  EXPECT(attnforge_block_mask_from_text(context, problem, words, NULL, &mask) == ATTNFORGE_OK);
  EXPECT(attnforge_block_mask_get(mask, &info) == ATTNFORGE_OK);
  EXPECT(info.row_begin == NULL && info.columns == NULL && info.row_begin_count == 3);
  EXPECT(info.blocks == 8 && info.full == (fake ? 0 : 2) && info.partial == (fake ? 0 : 4));
  EXPECT(attnforge_block_mask_on_gpu(mask, &lists) == ATTNFORGE_OK);
  EXPECT(lists.row_begin && lists.columns && lists.bits && lists.bit_blocks);
  EXPECT(attnforge_block_mask_get_shape(mask, &shape) == ATTNFORGE_OK);
  EXPECT(shape.block_q == 64 && shape.block_kv == 32 && shape.seqlen_kv == 128 && shape.heads == 1);
  EXPECT(attnforge_block_mask_words(mask, &text) == ATTNFORGE_OK);
  EXPECT(strncmp(text, "blocks=64:32 mask_bits density=", 31) == 0);
  attnforge_free_string(text);
  EXPECT(attnforge_block_mask_transpose(mask, NULL, &columns) == ATTNFORGE_OK);
  EXPECT(attnforge_block_mask_get_shape(columns, &shape) == ATTNFORGE_OK);
  EXPECT(shape.block_q == 32 && shape.block_kv == 64);
  if (!fake) {
    EXPECT(attnforge_block_mask_draw(columns, 0, 0, 0, &text) == ATTNFORGE_OK);
    EXPECT(strcmp(text, "+#\n+#\n +\n +\n") == 0);
    attnforge_free_string(text);
    EXPECT(attnforge_block_mask_to_host(mask, &in_host) == ATTNFORGE_OK);
    EXPECT(attnforge_block_mask_get(in_host, &info) == ATTNFORGE_OK);
    EXPECT(info.columns_count == 6 && info.columns[0] == 1 && info.columns[5] == 7);
    EXPECT_ERROR(attnforge_block_mask_on_gpu(in_host, &lists), ATTNFORGE_ERR_INVALID,
                 "attnforge_block_mask_to_gpu");
    attnforge_block_mask_destroy(mask);
    EXPECT(attnforge_block_mask_to_gpu(context, in_host, &mask) == ATTNFORGE_OK);
    EXPECT(attnforge_block_mask_get(mask, &info) == ATTNFORGE_OK && info.full == 2);
    attnforge_block_mask_destroy(in_host);
  }
  attnforge_block_mask_destroy(columns);
  attnforge_block_mask_destroy(mask);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* A run without its page table, and one whose part is of another version. */
static void test_pages_of_a_run(void* library, int fake) {
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(
      "fwd bf16 batch=2 num_heads=4:2 seqlen=1:64 head_dim=64 lengths=used page_size=16");
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_pages pages = ATTNFORGE_PAGES_INIT;
  attnforge_lengths lengths = ATTNFORGE_LENGTHS_INIT;
  size_t bytes = 0;
  void* workspace;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  EXPECT(tensors.k.stride_batch == 16 * 2 * 64);
  EXPECT(attnforge_plan_workspace(plan, NULL, &bytes) == ATTNFORGE_OK);
  workspace = device_array(library, fake, bytes / 2 + 128, 0);
  tensors.q.data = device_array(library, fake, 2 * 4 * 64, 0);
  tensors.o.data = device_array(library, fake, 2 * 4 * 64, 0);
  tensors.k.data = tensors.v.data = device_array(library, fake, 8 * 16 * 2 * 64, 0);
  lengths.kv = (int32_t*)device_array(library, fake, 4, 0);
  tensors.lengths = &lengths;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "pages.table is null");
  pages.table = (int32_t*)device_array(library, fake, 2 * 2 * 4, 0);
  pages.stride_batch = 4;
  tensors.pages = &pages;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "num_pages=0");
  pages.num_pages = 8;
  pages.struct_size = 16;
  EXPECT_ERROR(attnforge_run(plan, &tensors, workspace, bytes, NULL), ATTNFORGE_ERR_INVALID,
               "tensors.pages.struct_size is 16");
  pages.struct_size = (uint32_t)sizeof pages;
  EXPECT(attnforge_run(plan, &tensors, workspace, bytes, NULL) == ATTNFORGE_OK);
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* Of a bwd, whose gradients are a part of the tensors. */
static void test_gradients_of_a_run(void* library, int fake) {
  enum { kElements = 2 * 32 * 64 };
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = made(
      "bwd bf16 num_heads=2 seqlen=32 head_dim=64 causal sinks args=\"float* slope[2]\" "
      "score=\"s + slope[head]\" dargs=slope");
  uint64_t words[2] = {0, 0};
  attnforge_plan_options options = ATTNFORGE_PLAN_OPTIONS_INIT;
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_gradients gradients = ATTNFORGE_GRADIENTS_INIT;
  desc.cache_path = ":memory:";
  options.family = "bwd_naive";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, &options, &plan) == ATTNFORGE_OK);
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  tensors.q.data = device_array(library, fake, kElements, 0);
  tensors.k.data = device_array(library, fake, kElements, 0);
  tensors.v.data = device_array(library, fake, kElements, 0);
  tensors.o.data = device_array(library, fake, kElements, 0);
  tensors.lse.data = (float*)device_array(library, fake, 2 * 2 * 32, 0);
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "tensor dout is null");
  gradients.dout = gradients.dq = gradients.dk = gradients.dv = tensors.q;
  gradients.dout.data = device_array(library, fake, kElements, 0);
  gradients.dq.data = device_array(library, fake, kElements, 0);
  gradients.dk.data = device_array(library, fake, kElements, 0);
  gradients.dv.data = device_array(library, fake, kElements, 0);
  tensors.gradients = &gradients;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "sinks is null");
  tensors.sinks = (const float*)device_array(library, fake, 4, 0);
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "dsinks is null, but the problem says sinks");
  gradients.dsinks = (float*)device_array(library, fake, 4, 0);
  words[0] = (uint64_t)(uintptr_t)device_array(library, fake, 4, 0);
  tensors.code_arguments = words;
  EXPECT_ERROR(
      attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
      "code_arguments[1] is 0x0; with dargs=\"slope\" it is the address of an array of float");
  words[1] = (uint64_t)(uintptr_t)device_array(library, fake, 4, 0) + 2;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "a multiple of 4 bytes");
  words[1] -= 2;
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  gradients.dsinks = (float*)((char*)gradients.dsinks + 2);
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "dsinks starts at");
  gradients.struct_size = 16;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "tensors.gradients.struct_size is 16");
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* Two parts of 2 rows, merged in place. */
static void test_merge(void* library, int fake) {
  enum { kRows = 2, kHeadDim = 64, kElements = kRows * kHeadDim };
  static const unsigned short kOne = 0x3f80; /* bf16 */
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = NULL;
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_state parts[2];
  int i;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_problem_create("merge bf16 seqlen=2 head_dim=64", &problem),
               ATTNFORGE_ERR_INVALID, "parts=0");
  EXPECT_ERROR(attnforge_problem_create("merge bf16 seqlen=2 head_dim=64 parts=2 causal", &problem),
               ATTNFORGE_ERR_INVALID, "causal is of fwd and bwd; leave it out of merge");
  EXPECT(attnforge_problem_create("merge bf16 seqlen=2 head_dim=64 lse parts=2", &problem) ==
         ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  for (i = 0; i < 2; ++i) {
    parts[i].o = tensors.o;
    parts[i].o.data = device_array(library, fake, kElements, kOne);
    parts[i].lse = tensors.lse;
    parts[i].lse.data = (float*)device_array(library, fake, 2 * kRows, 0);
  }
  tensors.o = parts[0].o;
  tensors.lse = parts[0].lse;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "parts is null");
  tensors.parts = parts;
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

/* Two rows of two sequences, in pages, and their lengths afterwards. */
static void test_append(void* library, int fake) {
  enum { kBatch = 2, kRow = 2 * 64, kPages = 8, kPageSize = 16, kPool = kPages * kPageSize * kRow };
  static const unsigned short kOne = 0x3f80; /* bf16 */
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_problem* problem = NULL;
  attnforge_plan* plan = NULL;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  attnforge_cache cache = ATTNFORGE_CACHE_INIT;
  attnforge_lengths lengths = ATTNFORGE_LENGTHS_INIT;
  attnforge_pages pages = ATTNFORGE_PAGES_INIT;
  attnforge_rope rope = ATTNFORGE_ROPE_INIT;
  copy_out_function copy_out = NULL;
  static unsigned short v_cache[kPool];
  int32_t used[kBatch];
  int i, written = 0;
  desc.cache_path = ":memory:";
  EXPECT(attnforge_context_create(&desc, &context) == ATTNFORGE_OK);
  EXPECT_ERROR(attnforge_problem_create("append bf16 queries", &problem), ATTNFORGE_ERR_INVALID,
               "queries needs rope");
  EXPECT(attnforge_problem_create("append bf16 batch=2 num_heads=2 seqlen=1:40 head_dim=64 "
                                  "page_size=16 rope=half lengths_after",
                                  &problem) == ATTNFORGE_OK);
  EXPECT(attnforge_plan_create(context, problem, NULL, &plan) == ATTNFORGE_OK);
  EXPECT(attnforge_contiguous_tensors(problem, &tensors) == ATTNFORGE_OK);
  tensors.k.data = device_array(library, fake, kBatch * kRow, kOne);
  tensors.v = tensors.k;
  cache.k.data = device_array(library, fake, kPool, 0);
  cache.k.stride_batch = kPageSize * kRow;
  cache.k.stride_row = kRow;
  cache.k.stride_head = 64;
  cache.v = cache.k;
  cache.v.data = device_array(library, fake, kPool, 0);
  lengths.kv = cache.lengths_after = (int32_t*)device_array(library, fake, 2 * kBatch, 0);
  tensors.cache = &cache;
  tensors.lengths = &lengths;
  rope.cos = rope.sin = (float*)device_array(library, fake, 2 * 40 * 32, 0);
  rope.rows = 39;
  tensors.rope = &rope;
  pages.table = (int32_t*)device_array(library, fake, 2 * kBatch * 3, 0); /* page 0 for all */
  pages.stride_batch = 0;
  pages.num_pages = kPages;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "pages.table is null");
  tensors.pages = &pages;
  EXPECT_ERROR(attnforge_run(plan, &tensors, NULL, 0, NULL), ATTNFORGE_ERR_INVALID,
               "rope_rows=39 is too few");
  rope.rows = 40;
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  EXPECT(attnforge_run(plan, &tensors, NULL, 0, NULL) == ATTNFORGE_OK);
  if (!fake) {
    EXPECT(find(library, "cuMemcpyDtoH_v2", &copy_out));
    EXPECT(copy_out(used, (unsigned long long)(uintptr_t)lengths.kv, sizeof used) == 0);
    EXPECT(used[0] == 2 && used[1] == 2);
    EXPECT(copy_out(v_cache, (unsigned long long)(uintptr_t)cache.v.data, sizeof v_cache) == 0);
    for (i = 0; i < kPool; ++i) written += v_cache[i] == kOne;
    EXPECT(written == 2 * kRow);
  }
  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
}

int main(int argc, char** argv) {
  const int fake = argc > 1 && strcmp(argv[1], "fake") == 0;
  attnforge_context_desc desc = ATTNFORGE_CONTEXT_DESC_INIT;
  attnforge_context* context = NULL;
  attnforge_status opened;
  test_struct_layout();
  test_versions();
  test_problems();
  test_sizes();
  test_handles_of_another_kind();
  test_struct_sizes();
  test_block_masks();
  test_query_and_inspect();
  test_contiguous();
  test_reference();

  desc.cache_path = ":memory:";
  opened = attnforge_context_create(&desc, &context);
  attnforge_context_destroy(context);
  if (opened == ATTNFORGE_OK) {
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    EXPECT(library != NULL);
    test_no_jit();
    test_hostile_configs();
    test_run(library, fake);
    test_packed_run(library, fake);
    test_run_of_code(library, fake);
    test_block_masks_on_gpu(fake);
    test_pages_of_a_run(library, fake);
    test_gradients_of_a_run(library, fake);
    test_merge(library, fake);
    test_append(library, fake);
  } else {
    EXPECT(opened == ATTNFORGE_ERR_NO_DRIVER && !fake);
    printf("no GPU: %s\n", attnforge_last_error());
  }
  printf("%d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
