#include "templates/ops/clear_rest/host.h"

#include <fmt/format.h>

#include <algorithm>

#include "templates/embedded.h"
#include "templates/host/argument.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

constexpr int kThreads = 256;  // ClearRest::kThreads
constexpr const char* kName = "clear_rest";

}  // namespace

Source clear_rest_source() {
  Source source;
  source.name = kName;
  source.entry = fmt::format(
      "// generated: zeros after packed sequences\n"
      "#include \"ops/clear_rest/kernel.cuh\"\n"
      "using namespace attnforge;\n"
      "static_assert(sizeof(ClearRestParams) == {} && ClearRest::kThreads == {});\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ ClearRestParams p) {{\n"
      "  ClearRest::run(p);\n"
      "}}\n",
      sizeof(ClearRestParams), kThreads, kThreads, kName);
  flatten(source, embedded_headers());
  return source;
}

LaunchStep clear_rest_step(std::span<const RowsToClear> arrays, int num_sms) {
  constexpr i64 kBytesOfBlock = kThreads * 16 * 4;
  ClearRestParams params{.count = static_cast<int>(arrays.size())};
  std::ranges::copy(arrays, params.arrays);
  i64 blocks = 1;
  for (const RowsToClear& each : arrays)
    blocks = std::max(blocks, each.rows * each.row_bytes * each.pieces / kBytesOfBlock);
  // Mostly there is next to nothing to clear.
  blocks = std::min<i64>(blocks, std::max(num_sms, 1));
  LaunchStep step = step_of(kName, kThreads, 0, blocks * params.count);
  Argument::of<ClearRestParams>(step).value(params).done();
  return step;
}

}  // namespace attnforge
