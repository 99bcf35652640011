// pointer_check.cpp - the explanation of what is wrong with the tensors of a run.
#include "plan/checks/pointer_check.h"

#include <fmt/format.h>

#include <bit>
#include <span>

#include "attnforge/error.h"
#include "generator/parts/part.h"
#include "generator/tensors/stored_rows.h"
#include "generator/tensors/tensor_check.h"

namespace attnforge {

PointerCheck::PointerCheck(const Problem& problem)
    : misaligned_(static_cast<std::uint8_t>(8 * problem.alignment_bytes - 1)),
      bits_q_(static_cast<std::uint8_t>(format_of(problem.dtype_q).bits)),
      bits_k_(static_cast<std::uint8_t>(stride_bits(problem.dtype_k, problem.alignment_bytes))),
      bits_v_(static_cast<std::uint8_t>(stride_bits(problem.dtype_v, problem.alignment_bytes))),
      bits_o_(static_cast<std::uint8_t>(format_of(problem.dtype_o).bits)),
      attends_(is_attention(problem)),
      needs_lse_(problem.lse) {
  if (!attends_) misaligned_ = 0;
  const std::span<const ProblemPart* const> parts = problem_parts();
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i]->in(problem)) continue;
    parts_ |= std::uint64_t{1} << i;
    if (parts[i]->known == nullptr) continue;
    if (known_ == nullptr) known_ = std::make_unique<std::uint64_t[]>(parts.size());
    known_[i] = parts[i]->known(problem);
  }
}

bool PointerCheck::parts_good(const Problem& problem, const Tensors& tensors) const {
  for (std::uint64_t rest = parts_; rest != 0; rest &= rest - 1) {
    const auto i = static_cast<std::size_t>(std::countr_zero(rest));
    const std::uint64_t known = known_ == nullptr ? 0 : known_[i];
    if (!problem_parts()[i]->good(problem, known, tensors)) return false;
  }
  return true;
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
    check_tensor("o", tensors.o, problem.dtype_o, problem.num_heads_q, stored.batch,
                 problem.seqlen_q, problem);
  }
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
