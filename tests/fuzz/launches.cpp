#include "tests/fuzz/launches.h"

#include <fmt/format.h>

#include "tests/fuzz/fuzz.h"
#include "tests/support/argument_fields.h"

namespace attnforge::fuzz {
namespace {

void require_step(const LaunchStep& step, const Source& source, const DeviceFacts& device,
                  const std::string& what) {
  const auto expect = [&](bool holds, const char* promise) {
    require(holds, fmt::format("{} of {}", promise, what));
  };
  expect(source.text.find(step.kernel + "(") != std::string::npos, "the kernel's symbol");
  expect(step.smem_bytes >= 0 && step.smem_bytes <= device.arch.smem_per_block_bytes,
         "shared memory");
  const std::string fault = test::argument_fault(step);
  expect(fault.empty(), fault.c_str());
  expect(step.grid.x >= 1 && step.grid.x <= static_cast<unsigned>(kMaxGridX), "gridDim.x");
  expect(step.grid.y >= 1 && step.grid.y <= 65535, "gridDim.y");
  expect(step.grid.z >= 1 && step.grid.z <= 65535, "gridDim.z");
  const std::uint64_t threads = std::uint64_t{step.block.x} * step.block.y * step.block.z;
  expect(threads >= 32 && threads <= 1024 && threads % 32 == 0, "the block's threads");
  for (const auto& [offset, map] : test::parts_of<TensorMapSpec>(step)) {
    expect(
        map.box_columns >= 1 && map.box_columns <= 256 && map.box_rows >= 1 && map.box_rows <= 256,
        "a map's box");
  }
}

}  // namespace

void require_sound(const Launch& launch, const Source& source, const Problem& problem,
                   const DeviceFacts& device) {
  const std::string what = fmt::format("{} for {} on sm_{}", source.entry.substr(0, 400),
                                       to_string(problem), device.arch.name);
  const bool nothing = problem.batch == 0 || problem.seqlen_q == 0;
  // Gradients of keys that no query sees are zeros, which a kernel writes.
  const bool sound = launch.steps.empty() ? nothing : !nothing || is_backward(problem);
  require(sound, "the number of steps of " + what);
  require(launch.workspace_bytes < std::size_t{1} << 62, "the workspace of " + what);
  for (const LaunchStep& step : launch.steps) require_step(step, source, device, what);
}

}  // namespace attnforge::fuzz
