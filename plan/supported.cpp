// supported.cpp - what can be said of a problem without a GPU, and the names of policies and
// provenances.
#include <fmt/format.h>

#include "attnforge/error.h"
#include "attnforge/plan.h"
#include "generator/candidates.h"
#include "templates/registry.h"

namespace attnforge {

Support supported(const Problem& problem, const DeviceFacts& device) {
  validate(problem);
  Support support;
  for (const Family* family : registry()) {
    const std::string reason = rejection(*family, problem, device.arch);
    if (reason.empty()) return {true, std::string(family->name), ""};
    fmt::format_to(std::back_inserter(support.reason), "{}{}: {}",
                   support.reason.empty() ? "" : "\n", family->name, reason);
  }
  return support;
}

Tensors contiguous_tensors(const Problem& p) {
  const auto rows_of_heads = [](std::int64_t seqlen, std::int64_t num_heads,
                                std::int64_t head_dim) {
    return Tensor{.stride_batch = seqlen * num_heads * head_dim,
                  .stride_row = num_heads * head_dim,
                  .stride_head = head_dim};
  };
  const auto heads_of_rows = [](std::int64_t seqlen, std::int64_t num_heads,
                                std::int64_t head_dim) {
    return Tensor{.stride_batch = seqlen * num_heads * head_dim,
                  .stride_row = head_dim,
                  .stride_head = seqlen * head_dim};
  };
  Tensors tensors;
  switch (p.layout) {
    case Layout::kBshd:
      tensors.q = rows_of_heads(p.seqlen_q, p.num_heads_q, p.head_dim);
      tensors.k = rows_of_heads(p.seqlen_kv, p.num_heads_kv, p.head_dim);
      tensors.v = rows_of_heads(p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
      break;
    case Layout::kBhsd:
      tensors.q = heads_of_rows(p.seqlen_q, p.num_heads_q, p.head_dim);
      tensors.k = heads_of_rows(p.seqlen_kv, p.num_heads_kv, p.head_dim);
      tensors.v = heads_of_rows(p.seqlen_kv, p.num_heads_kv, p.head_dim_v);
      break;
    case Layout::kPackedQkv:
      tensors.q = tensors.k = tensors.v = rows_of_heads(
          p.seqlen_q, p.num_heads_q + 2 * p.num_heads_kv, p.head_dim);
      break;
  }
  tensors.o = p.layout == Layout::kBhsd ? heads_of_rows(p.seqlen_q, p.num_heads_q, p.head_dim_v)
                                        : rows_of_heads(p.seqlen_q, p.num_heads_q, p.head_dim_v);
  tensors.lse_stride_batch = p.num_heads_q * p.seqlen_q;
  tensors.lse_stride_head = p.seqlen_q;
  return tensors;
}

std::string_view to_string(Policy policy) {
  switch (policy) {
    case Policy::kEstimate:
      return "estimate";
    case Policy::kFirstRun:
      return "first_run";
    case Policy::kCachedOnly:
      return "cached_only";
  }
  return "unknown";
}

std::string_view to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kNearDevice:
      return "near_device";
    case Provenance::kEstimated:
      return "estimated";
    case Provenance::kForced:
      return "forced";
  }
  return "unknown";
}

}  // namespace attnforge
