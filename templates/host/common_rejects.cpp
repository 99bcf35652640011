#include "templates/host/common_rejects.h"

#include <fmt/format.h>

namespace attnforge {

Reason below_sm80(const Arch& arch) {
  return arch.sm < 80 ? fmt::format("sm_{} is below sm_80", arch.name) : std::string();
}

Reason without_cp_async(const Arch& arch) {
  return arch.cp_async ? "" : "needs cp.async (sm_80 and later)";
}

Reason not_16_bits(const Problem& problem) {
  return problem.dtype_q == DType::kFp32 ? "takes fp16 or bf16, not fp32" : "";
}

Reason below_alignment(const Problem& problem, int bytes) {
  if (problem.alignment_bytes >= bytes) return "";
  return Reason("needs pointers and strides aligned to {} bytes; alignment={}", bytes,
                problem.alignment_bytes);
}

Reason head_dim_above(const Problem& problem, int most) {
  const int largest = std::max(problem.head_dim, problem.head_dim_v);
  if (largest <= most) return "";
  return Reason("head dim {} is above its limit of {}", largest, most);
}

Reason too_many_blocks(double blocks) {
  if (blocks <= double(kMaxGridX)) return "";
  return fmt::format("needs {:.0f} thread blocks, more than a grid can have", blocks);
}

Reason too_many_query_tiles(const Problem& problem, int block_m) {
  return too_many_blocks(double(query_tiles(problem, block_m)));
}

}  // namespace attnforge
