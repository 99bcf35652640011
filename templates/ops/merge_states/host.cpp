#include "templates/ops/merge_states/host.h"

#include <fmt/format.h>

#include <cstddef>

#include "attnforge/error.h"
#include "templates/embedded.h"
#include "templates/host/fwd_params.h"
#include "templates/parts/splits/params.h"

namespace attnforge {
namespace {

constexpr const char* kMergeKernel = "merge_states";

}  // namespace

Source merge_source(const MergeCode& code) {
  Source source;
  source.name = kMergeKernel;
  source.entry = fmt::format(
      "// generated: merges {} parts of head dim {} into {}\n"
      "#include \"ops/merge_states/kernel.cuh\"\n"
      "using namespace attnforge;\n"
      "static_assert(sizeof(MergeParams) == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ MergeParams p) {{\n"
      "  MergeStates<{}, {}, {}, {}>::run(p);\n"
      "}}\n",
      to_string(code.dtype), code.head_dim, to_string(code.dtype_o), sizeof(MergeParams),
      MergeShape::kThreads, kMergeKernel, static_cast<int>(code.dtype),
      static_cast<int>(code.dtype_o), code.head_dim, code.alignment);
  flatten(source, embedded_headers());
  return source;
}

LaunchStep merge_step(const MergeCode& code) {
  LaunchStep step = step_of(kMergeKernel, MergeShape::kThreads,
                            MergeShape::smem_bytes(code.head_dim));
  step.params.assign(sizeof(MergeParams), std::byte{0});
  return step;
}

unsigned merge_blocks(std::int64_t rows, int parts) {
  const int rows_of_block = MergeShape::of(parts).rows();
  const std::int64_t blocks = (rows + rows_of_block - 1) / rows_of_block;
  ATTNFORGE_ASSERT(blocks <= kMaxGridX, "who asks has counted the rows");
  return static_cast<unsigned>(blocks);
}

}  // namespace attnforge
