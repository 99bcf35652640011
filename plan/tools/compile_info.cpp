#include "plan/tools/compile_info.h"

#include "generator/arch.h"
#include "generator/overrides.h"

namespace attnforge {

CompileInfo describe(const Cubin& cubin, const Source& source, const Launch& launch,
                     const Arch& arch) {
  const auto own = cubin.kernels.find(
      launch.steps.empty() ? "" : symbol_of(launch.steps[own_step(launch)].kernel, source));
  const KernelResources& code = own == cubin.kernels.end() ? cubin : own->second;
  CompileInfo info{.ok = true,
                   .log = cubin.log,
                   .compile_ms = cubin.compile_ms,
                   .registers = code.registers,
                   .spill_bytes = code.spill_store_bytes + code.spill_load_bytes,
                   .smem_bytes = code.smem_static_bytes,
                   .cubin_bytes = cubin.bytes.size()};
  if (cubin.wgmma_serialized) info.log += "\nwgmma instructions were serialized";
  if (launch.steps.empty()) return info;
  const LaunchStep& step = launch.steps[own_step(launch)];
  const int threads = static_cast<int>(step.block.x * step.block.y * step.block.z);
  info.smem_bytes += step.smem_bytes;
  info.blocks_per_sm = blocks_per_sm(arch, code.registers, threads, info.smem_bytes);
  constexpr int kWarp = 32;
  const int warps = (threads + kWarp - 1) / kWarp;
  info.occupancy = static_cast<double>(info.blocks_per_sm * warps) /
                   (arch.max_threads_per_sm / kWarp);
  return info;
}

}  // namespace attnforge
