// pointer_check.cpp - the explanation of what is wrong with the tensors of a run.
#include "plan/checks/pointer_check.h"

#include <fmt/format.h>

#include <algorithm>

#include "attnforge/error.h"
#include "generator/parts/part.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {

PointerCheck::PointerCheck(const Problem& problem)
    : misaligned_(static_cast<std::uint8_t>(8 * problem.alignment_bytes - 1)),
      bits_q_(static_cast<std::uint8_t>(format_of(problem.dtype_q).bits)),
      bits_k_(static_cast<std::uint8_t>(format_of(problem.dtype_k).bits)),
      bits_v_(static_cast<std::uint8_t>(format_of(problem.dtype_v).bits)),
      bits_o_(static_cast<std::uint8_t>(format_of(problem.dtype_o).bits)),
      attends_(is_attention(problem)),
      needs_lse_(problem.lse) {
  if (!attends_) bits_q_ = bits_k_ = bits_v_ = 0;
  for (const ProblemPart* part : problem_parts()) {
    if (part->in(problem))
      parts_.push_back({part, part->known == nullptr ? 0 : part->known(problem)});
  }
}

bool PointerCheck::parts_good(const Problem& problem, const Tensors& tensors) const {
  return std::ranges::all_of(
      parts_, [&](const Part& p) { return p.part->good(problem, p.known, tensors); });
}

void PointerCheck::explain(const Problem& problem, const Tensors& tensors, const void* workspace,
                           std::size_t workspace_bytes) const {
  const StoredRows stored = stored_rows_of_run(problem, tensors);
  const std::int64_t rows_kv = stored.pool && problem.seqlen_kv != 0 ? stored.kv
                                                                     : problem.seqlen_kv;
  if (attends_) {
    check_tensor("q", tensors.q, problem.dtype_q, problem.num_heads_q, stored.batch,
                 problem.seqlen_q, problem);
    check_tensor("k", tensors.k, problem.dtype_k, problem.num_heads_kv, stored.kv_batch, rows_kv,
                 problem);
    check_tensor("v", tensors.v, problem.dtype_v, problem.num_heads_kv, stored.kv_batch, rows_kv,
                 problem);
  }
  check_tensor("o", tensors.o, problem.dtype_o, problem.num_heads_q, stored.batch, problem.seqlen_q,
               problem);
  if (problem.lse) {
    check_address("lse", tensors.lse.data, alignof(float),
                  "but the problem says lse; give it device memory, or make the plan without lse");
  }
  for (const ProblemPart* part : problem_parts()) {
    if (part->in(problem)) part->explain(problem, tensors);
  }
  if (workspace_bytes == 0) return;
  check_address("the workspace", workspace, kWorkspaceAlignment,
                fmt::format("but this plan needs {} bytes of device memory", workspace_bytes));
}

}  // namespace attnforge
