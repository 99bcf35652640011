// gpu.cpp - what a plan does, in a few lines and without the library above: candidates, compile,
// load, bind, launch.
#include "tests/conformance/gpu.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <span>

#include "attnforge/error.h"
#include "reference/parallel.h"
#include "runtime/compile/compiler.h"
#include "tests/support/hostile_configs.h"

namespace attnforge::test {

std::string gpu_problem() {
  if (!driver_problem().empty()) return driver_problem();
  if (device_count() == 0) return "the driver shows no GPU";
  if (!nvrtc_facts().available) return nvrtc_facts().problem;
  if (gpu_facts().arch.name.empty())
    return "attnforge has no kernels for the arch of " + gpu_facts().name;
  return "";
}

PrimaryContext& gpu_context() {
  static PrimaryContext context(0);
  return context;
}

const DeviceFacts& gpu_facts() {
  static const DeviceFacts facts = device_facts(0);
  return facts;
}

GpuProblem::GpuProblem(const HostProblem& host) {
  std::vector<void*> bases;
  for (const auto& storage : host.storages) {
    buffers.emplace_back(storage.size());
    bases.push_back(buffers.back().data());
  }
  tensors = host.tensors(bases);
  upload(host);
}

void GpuProblem::upload(const HostProblem& host) {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    buffers[i].copy_from_host(host.storages[i].data(), buffers[i].size_bytes());
}

void GpuProblem::download(HostProblem& host) const {
  for (std::size_t i = 0; i < buffers.size(); ++i)
    buffers[i].copy_to_host(host.storages[i].data(), buffers[i].size_bytes());
}

namespace {

/// The config used when nothing was measured, and `more` others.
std::vector<Candidate> some_candidates(const Family& family, const Problem& problem,
                                       const DeviceFacts& device, int more, unsigned seed) {
  std::vector<Candidate> all = candidates(family, problem, device);
  if (all.empty()) return {};
  std::shuffle(all.begin() + 1, all.end(),
               std::mt19937(seed));  // the first is the one used when nothing was measured
  all.resize(std::min(all.size(), static_cast<std::size_t>(1 + more)));
  return all;
}

template <class Compile>
std::vector<Compiled> compile_by(const std::vector<Candidate>& all, const Problem& problem,
                                 const DeviceFacts& device, const Compile& compile_source) {
  std::vector<Compiled> compiled(all.size());
  parallel_for(static_cast<std::int64_t>(all.size()), 0, [&](std::int64_t index) {
    Compiled& c = compiled[static_cast<std::size_t>(index)];
    c.candidate = all[static_cast<std::size_t>(index)];
    const Family& family = *c.candidate.family;
    c.launch = family.launch(c.candidate.config, problem, device);
    try {
      c.cubin = compile_source(family.render(c.candidate.config, problem));
    } catch (const Error& error) {
      c.failure = error.what();
    }
  });
  return compiled;
}

Cubin compile_for_this_gpu(const Source& source) { return compile(source, gpu_facts().arch); }

}  // namespace

Compiled compile_candidate(const Candidate& candidate, const Problem& problem) {
  return compile_by({candidate}, problem, gpu_facts(), compile_for_this_gpu).front();
}

std::vector<Compiled> compile_some(const Family& family, const Problem& problem, int more,
                                   unsigned seed) {
  return compile_by(some_candidates(family, problem, gpu_facts(), more, seed), problem, gpu_facts(),
                    compile_for_this_gpu);
}

std::vector<Compiled> compile_unsearched(const Family& family, const Problem& problem, int count,
                                         unsigned seed) {
  if (!rejection(family, problem, gpu_facts().arch).empty()) return {};
  return compile_by(unsearched_configs(family, problem, gpu_facts(), count, seed), problem,
                    gpu_facts(), compile_for_this_gpu);
}

std::vector<Compiled> compile_some_to_ptx(const Family& family, const Problem& problem,
                                          const DeviceFacts& device, int more, unsigned seed) {
  const auto to_ptx = [&](const Source& source) {
    const std::string text = compile_to_ptx(source, device.arch);
    const auto bytes = std::as_bytes(std::span(text.c_str(), text.size() + 1));  // with its 0
    Cubin ptx;
    ptx.bytes.assign(bytes.begin(), bytes.end());
    ptx.arch = device.arch.name;
    return ptx;
  };
  return compile_by(some_candidates(family, problem, device, more, seed), problem, device, to_ptx);
}

Loaded::Loaded(const Compiled& compiled)
    : kernels_(compiled.cubin.bytes, {}, compiled.launch), launch_(compiled.launch, kernels_) {
  if (launch_.counted_steps() > 0) counters_->reserve();
}

void Loaded::run(const Tensors& tensors, const Buffer& workspace, CUstream stream) const {
  RunMemory memory{.workspace = workspace.data()};
  if (const int counted = launch_.counted_steps(); counted > 0)
    memory.counters = counters_->of(stream, counted);
  launch_.run(tensors, memory, stream);
}

Buffer Loaded::make_workspace() const {
  Buffer workspace((launch_.workspace_bytes() + 3) / 4 * 4);
  workspace.fill32(0x7fd57fd5);  // NaN in each dtype
  return workspace;
}

std::string Loaded::misfit(const Arch& arch) const {
  for (const LoadedLaunch::Step& each : launch_.steps()) {
    const auto& [kernel, step] = *each.loaded;
    const int smem_bytes = step.smem_bytes + kernel->attributes().smem_static_bytes;
    if (smem_bytes > arch.smem_per_block_bytes)
      return fmt::format("{} wants {} bytes of shared memory, sm_{} gives a block {}", step.kernel,
                         smem_bytes, arch.name, arch.smem_per_block_bytes);
    if (static_cast<int>(step.block.x * step.block.y * step.block.z) > arch.max_threads_per_sm)
      return fmt::format("{} wants a block of {} threads", step.kernel, step.block.x);
  }
  return "";
}

}  // namespace attnforge::test
