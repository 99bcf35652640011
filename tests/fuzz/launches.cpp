#include "tests/fuzz/launches.h"

#include <fmt/format.h>

#include "tests/fuzz/fuzz.h"

namespace attnforge::fuzz {
namespace {

void require_step(const Family& family, const LaunchStep& step, const Source& source,
                  const Problem& problem, const DeviceFacts& device, const std::string& what) {
  const auto expect = [&](bool holds, const char* promise) {
    require(holds, fmt::format("{} of {}", promise, what));
  };
  expect(source.text.find(step.kernel + "(") != std::string::npos, "the kernel's symbol");
  expect(step.smem_bytes >= 0 && step.smem_bytes <= device.arch.smem_per_block_bytes,
         "shared memory");
  expect(!step.params.empty() && step.params.size() <= kMaxParamsBytes, "the arguments' size");
  expect(step.grid.x >= 1 && step.grid.x <= static_cast<unsigned>(kMaxGridX), "gridDim.x");
  expect(step.grid.y >= 1 && step.grid.y <= 65535, "gridDim.y");
  expect(step.grid.z >= 1 && step.grid.z <= 65535, "gridDim.z");
  const std::uint64_t threads = std::uint64_t{step.block.x} * step.block.y * step.block.z;
  expect(threads >= 32 && threads <= 1024 && threads % 32 == 0, "the block's threads");
  const unsigned blocks = step.cluster.x * step.cluster.y * step.cluster.z;
  expect(blocks >= 1 && blocks <= 8 && step.grid.x % step.cluster.x == 0, "the cluster");
  for (const TensorMapSpec& map : step.tensor_maps) {
    expect(map.offset % 64 == 0 && map.offset + 128 <= step.params.size(), "a map's place");
    expect(
        map.box_columns >= 1 && map.box_columns <= 256 && map.box_rows >= 1 && map.box_rows <= 256,
        "a map's box");
  }
  // A byte more at the end shows a write outside.
  std::vector<std::byte> bound(step.params.size() + 1, std::byte{0x5a});
  std::byte memory[1024];
  Tensors tensors = contiguous_tensors(problem);
  for (Tensor* tensor : {&tensors.q, &tensors.k, &tensors.v, &tensors.o}) tensor->data = memory;
  family.bind(step, tensors, nullptr, std::span(bound).first(step.params.size()));
  expect(bound.back() == std::byte{0x5a}, "the arguments' end");
}

}  // namespace

void require_sound(const Family& family, const Launch& launch, const Source& source,
                   const Problem& problem, const DeviceFacts& device) {
  const std::string what = fmt::format("{} for {} on sm_{}", source.entry.substr(0, 400),
                                       to_string(problem), device.arch.name);
  const bool nothing = problem.batch == 0 || problem.seqlen_q == 0;
  require(launch.steps.empty() == nothing, "the number of steps of " + what);
  require(launch.workspace_bytes < std::size_t{1} << 62, "the workspace of " + what);
  for (const LaunchStep& step : launch.steps)
    require_step(family, step, source, problem, device, what);
}

}  // namespace attnforge::fuzz
