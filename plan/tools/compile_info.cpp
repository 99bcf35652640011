#include "plan/tools/compile_info.h"

#include "generator/arch.h"

namespace attnforge {

CompileInfo describe(const Cubin& cubin, const Launch& launch, const Arch& arch) {
  CompileInfo info{.ok = true,
                   .log = cubin.log,
                   .compile_ms = cubin.compile_ms,
                   .registers = cubin.registers,
                   .spill_bytes = cubin.spill_store_bytes + cubin.spill_load_bytes,
                   .smem_bytes = cubin.smem_static_bytes,
                   .cubin_bytes = cubin.bytes.size()};
  if (cubin.wgmma_serialized) info.log += "\nwgmma instructions were serialized";
  if (launch.steps.empty()) return info;
  const LaunchStep& step = launch.steps[own_step(launch)];
  const int threads = static_cast<int>(step.block.x * step.block.y * step.block.z);
  info.smem_bytes += step.smem_bytes;
  info.blocks_per_sm = blocks_per_sm(arch, cubin.registers, threads, info.smem_bytes);
  constexpr int kWarp = 32;
  const int warps = (threads + kWarp - 1) / kWarp;
  info.occupancy = static_cast<double>(info.blocks_per_sm * warps) /
                   (arch.max_threads_per_sm / kWarp);
  return info;
}

}  // namespace attnforge
