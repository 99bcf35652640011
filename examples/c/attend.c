/* attend.c - attention from C: a problem, a plan for it, one run on memory of your own.
 *
 * Device memory is the CUDA driver's here; cudaMalloc of the runtime gives memory that is as good.
 */
#include <attnforge/c.h>
#include <cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Every call of attnforge returns a status, and this thread's last error says what to do. */
#define ATTNFORGE(call) \
  if ((call) != ATTNFORGE_OK) fail(#call, attnforge_last_error())
#define CUDA(call) cuda(call, #call)

static void fail(const char* call, const char* why) {
  fprintf(stderr, "%s: %s\n", call, why);
  exit(1);
}

static void cuda(CUresult result, const char* call) {
  const char* why = "unknown error";
  if (result == CUDA_SUCCESS) return;
  cuGetErrorString(result, &why);
  fail(call, why);
}

/* bf16 is the upper half of a float. */
static unsigned short to_bf16(float value) {
  unsigned bits;
  memcpy(&bits, &value, sizeof bits);
  return (unsigned short)(bits >> 16);
}

static float from_bf16(unsigned short value) {
  unsigned bits = (unsigned)value << 16;
  float result;
  memcpy(&result, &bits, sizeof result);
  return result;
}

/* `count` elements of bf16 in device memory, all of one value. */
static CUdeviceptr array(size_t count, float value) {
  CUdeviceptr address = 0;
  unsigned short* host = malloc(count * sizeof *host);
  size_t i;
  if (host == NULL) fail("malloc", "out of memory");
  for (i = 0; i < count; ++i) host[i] = to_bf16(value);
  CUDA(cuMemAlloc(&address, count * sizeof *host));
  CUDA(cuMemcpyHtoD(address, host, count * sizeof *host));
  free(host);
  return address;
}

int main(void) {
  enum { kSeqlen = 1024, kHeads = 32, kHeadsKv = 8, kHeadDim = 128 };
  const char* text = "fwd bf16 batch=1 num_heads=32:8 seqlen=1024 head_dim=128 causal";
  const size_t count_q = (size_t)kSeqlen * kHeads * kHeadDim;
  const size_t count_kv = (size_t)kSeqlen * kHeadsKv * kHeadDim;
  attnforge_context* context = NULL;
  attnforge_problem* problem = NULL;
  attnforge_plan* plan = NULL;
  attnforge_plan_options options = ATTNFORGE_PLAN_OPTIONS_INIT;
  attnforge_tensors tensors = ATTNFORGE_TENSORS_INIT;
  CUcontext primary = NULL;
  CUdeviceptr q, k, v, o, workspace = 0;
  size_t workspace_bytes = 0;
  unsigned short first = 0;

  /* ---- 1. GPU 0: the context that the CUDA runtime and frameworks use too ---- */
  CUDA(cuInit(0));
  CUDA(cuDevicePrimaryCtxRetain(&primary, 0));
  CUDA(cuCtxSetCurrent(primary));
  ATTNFORGE(attnforge_context_create(NULL, &context));

  /* ---- 2. A plan, made once: the winner of an earlier tuning, else the model's choice, compiled
   * now. ATTNFORGE_POLICY_FIRST_RUN would tune for options.time_limit_s, and remember. ---- */
  options.policy = ATTNFORGE_POLICY_ESTIMATE;
  ATTNFORGE(attnforge_problem_create(text, &problem));
  ATTNFORGE(attnforge_plan_create(context, problem, &options, &plan));
  ATTNFORGE(attnforge_plan_workspace(plan, NULL, &workspace_bytes)); /* 0 for most problems */
  printf("%s (%s)\n", attnforge_plan_config(plan), attnforge_plan_provenance(plan));

  /* ---- 3. Tensors: contiguous here; any strides with a contiguous last dimension will do ---- */
  q = array(count_q, 0.5f);
  k = array(count_kv, 0.25f);
  v = array(count_kv, 1);
  o = array(count_q, 0);
  if (workspace_bytes > 0) CUDA(cuMemAlloc(&workspace, workspace_bytes));
  ATTNFORGE(attnforge_contiguous_tensors(problem, &tensors));
  tensors.q.data = (void*)q;
  tensors.k.data = (void*)k;
  tensors.v.data = (void*)v;
  tensors.o.data = (void*)o;

  /* ---- 4. Only launches: no allocation, no wait. NULL is the default stream ---- */
  ATTNFORGE(attnforge_run(plan, &tensors, (void*)workspace, workspace_bytes, NULL));
  CUDA(cuMemcpyDtoH(&first, o, sizeof first));
  printf("o[0] = %g; every value is 1, and so is each mean of them\n", from_bf16(first));

  attnforge_plan_destroy(plan);
  attnforge_problem_destroy(problem);
  attnforge_context_destroy(context);
  CUDA(cuMemFree(q));
  CUDA(cuMemFree(k));
  CUDA(cuMemFree(v));
  CUDA(cuMemFree(o));
  if (workspace_bytes > 0) CUDA(cuMemFree(workspace));
  CUDA(cuDevicePrimaryCtxRelease(0));
  return 0;
}
