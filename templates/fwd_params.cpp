// fwd_params.cpp - Problem and Tensors to FwdParams.
#include "templates/fwd_params.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "attnforge/error.h"

namespace attnforge {
namespace {

static_assert(std::is_trivially_copyable_v<FwdParams> && sizeof(FwdParams) <= kMaxParamsBytes);

int window_bound(std::int64_t bound) {
  return bound < 0 ? kOpenWindow : static_cast<int>(std::min<std::int64_t>(bound, kOpenWindow));
}

TensorRef tensor_ref(const Tensor& tensor) {
  return {tensor.data, tensor.stride_batch, tensor.stride_row, tensor.stride_head};
}

}  // namespace

FwdParams fwd_params(const Problem& problem) {
  const Window window = effective_window(problem);
  FwdParams params{};
  params.batch = static_cast<int>(problem.batch);
  params.num_heads_q = static_cast<int>(problem.num_heads_q);
  params.num_heads_kv = static_cast<int>(problem.num_heads_kv);
  params.seqlen_q = static_cast<int>(problem.seqlen_q);
  params.seqlen_kv = static_cast<int>(problem.seqlen_kv);
  params.window_left = window_bound(window.left);
  params.window_right = window_bound(window.right);
  params.softmax_scale = effective_softmax_scale(problem);
  params.softcap = problem.softcap;
  return params;
}

void bind_fwd(const LaunchStep& step, const Tensors& tensors, void* /*workspace*/,
              std::span<std::byte> out) {
  ATTNFORGE_ASSERT(step.params.size() >= sizeof(FwdParams) && out.size() == step.params.size(),
                   "the argument of a forward kernel begins with FwdParams");
  FwdParams params;
  std::memcpy(&params, step.params.data(), sizeof(params));
  params.q = tensor_ref(tensors.q);
  params.k = tensor_ref(tensors.k);
  params.v = tensor_ref(tensors.v);
  params.o = tensor_ref(tensors.o);
  params.lse = tensors.lse;
  params.lse_stride_batch = tensors.lse_stride_batch;
  params.lse_stride_head = tensors.lse_stride_head;
  std::memcpy(out.data(), &params, sizeof(params));
  std::memcpy(out.data() + sizeof(params), step.params.data() + sizeof(params),
              out.size() - sizeof(params));
}

}  // namespace attnforge
