// weights.cpp - attention weights of the C API.
#include "attnforge/weights.h"

#include "attnforge/c.h"
#include "plan/c/convert.h"
#include "plan/c/error.h"
#include "plan/c/handle.h"

using namespace attnforge;

attnforge_status attnforge_attention_weights(attnforge_context* context,
                                             const attnforge_problem* problem,
                                             const attnforge_tensors* tensors, const int32_t* rows,
                                             int64_t num_rows, const attnforge_tensor* weights,
                                             void* stream) {
  return guarded([&] {
    Device& device = device_of(context);
    attention_weights(checked_handle(problem, "problem").problem, from_c(tensors), {rows, num_rows},
                      from_c(required(weights, "weights")), device, stream, !context->no_jit);
  });
}

attnforge_status attnforge_key_mass(attnforge_context* context, const attnforge_problem* problem,
                                    const attnforge_tensors* tensors, const attnforge_rows* mass,
                                    void* stream) {
  return guarded([&] {
    Device& device = device_of(context);
    key_mass(checked_handle(problem, "problem").problem, from_c(tensors),
             from_c(required(mass, "mass")), device, stream, !context->no_jit);
  });
}
