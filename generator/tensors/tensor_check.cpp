#include "generator/tensors/tensor_check.h"

#include <fmt/format.h>

#include "attnforge/error.h"
#include "generator/tensors/stored_rows.h"

namespace attnforge {
namespace {

struct Dimension {
  std::string_view name;
  std::int64_t stride;
  std::int64_t size;
};

}  // namespace

void check_tensor(std::string_view name, const Tensor& tensor, DType dtype, std::int64_t num_heads,
                  std::int64_t batch, std::int64_t seqlen, const Problem& problem) {
  const int alignment = problem.alignment_bytes;
  const StoredRows stored = stored_rows(problem);
  if (problem.batch == 0 || seqlen == 0) return;  // nothing of it is read or written
  if (tensor.data == nullptr) refuse_tensors("tensor {} is null; it needs device memory", name);
  if (address_bits(tensor.data) % static_cast<unsigned>(alignment) != 0) {
    refuse_tensors(
        "tensor {} starts at {}, which is not a multiple of {} bytes; align it, or make the plan "
        "for a problem with a smaller alignment",
        name, fmt::ptr(tensor.data), alignment);
  }
  const Dimension dimensions[] = {
      {"stride_batch", tensor.stride_batch, batch},
      {"stride_row", tensor.stride_row, stored.of_run ? problem.batch * seqlen : seqlen},
      {"stride_head", tensor.stride_head, num_heads}};
  for (const Dimension& dimension : dimensions) {
    if (dimension.size == 1) continue;
    // Low bits only: they are right whatever overflows.
    const std::uint64_t bits = static_cast<std::uint64_t>(dimension.stride) *
                               static_cast<std::uint64_t>(stride_bits(dtype, alignment));
    if (is_blocks(dtype) && bits % (8 * static_cast<std::uint64_t>(alignment)) != 0)
      refuse_tensors("tensor {} has {}={} elements, which are not whole blocks of {}", name,
                     dimension.name, dimension.stride, kBlockElements);
    if (bits % (8 * static_cast<std::uint64_t>(alignment)) != 0) {
      refuse_tensors(
          "tensor {} has {}={} elements of {} bits, which is not a multiple of {} bytes; copy it "
          "to aligned rows, or make the plan for a problem with a smaller alignment",
          name, dimension.name, dimension.stride, format_of(dtype).bits, alignment);
    }
  }
}

void check_address(std::string_view name, const void* pointer, std::uintptr_t alignment_bytes,
                   std::string_view or_else) {
  if (pointer == nullptr) refuse_tensors("{} is null, {}", name, or_else);
  check_alignment(name, pointer, alignment_bytes);
}

void check_alignment(std::string_view name, const void* pointer, std::uintptr_t alignment_bytes) {
  if (address_bits(pointer) % alignment_bytes == 0) return;
  refuse_tensors("{} starts at {}, which is not a multiple of {} bytes", name, fmt::ptr(pointer),
                 alignment_bytes);
}

}  // namespace attnforge
