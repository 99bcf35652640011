#include "templates/host/launch_work.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>

#include "attnforge/error.h"
#include "generator/shape.h"
#include "templates/base_params.h"
#include "templates/host/fwd_params.h"

namespace attnforge {
namespace {

void add_fwd(Argument& argument, const LaunchWork& work) { argument.fwd(work.problem()); }

/// Adds a step of `part`, if there is something to do.
void add_step(std::vector<LaunchStep>& steps, const LaunchWork& work, const Part& part,
              const Step& step) {
  if (step.in != nullptr && !step.in(work.assembly)) return;
  LaunchStep launched = step.launch(work);
  if (launched.grid.x == 0) return;
  const StepArgument& own = *work.assembly.kernel.step_argument;
  Argument argument = Argument::of_size(launched, step_argument_bytes(work.assembly, part));
  own.fill(argument, work);
  argument.end_of_base(own.own.bytes, own.own.alignment);
  add_parts(argument, work, &part);
  argument.done();
  launched.overlaps_previous = step.overlaps;
  steps.push_back(std::move(launched));
}

}  // namespace

const StepArgument kForwardSteps{{"StepParams", sizeof(FwdParams), alignof(FwdParams)}, add_fwd};

std::size_t LaunchWork::begin_of(const Part& part) const {
  const auto at = std::ranges::find(assembly.parts, &part) - assembly.parts.begin();
  return begins[static_cast<std::size_t>(at)];
}

LaunchWork launch_work(const Assembly& assembly, const DeviceFacts& device,
                       const TileSchedule& tiles) {
  LaunchWork work{.assembly = assembly, .device = device, .tiles = tiles};
  for (std::size_t i = 0; i < assembly.parts.count; ++i) {
    const Part& part = *assembly.parts.list[i];
    work.begins[i] = scratch_aligned(work.workspace_bytes);
    const std::size_t bytes = part.scratch == nullptr ? 0 : part.scratch(work);
    if (bytes != 0) work.workspace_bytes = work.begins[i] + bytes;
  }
  return work;
}

LaunchWork launch_work(const Assembly& assembly, const DeviceFacts& device, int head_group_mb) {
  return launch_work(assembly, device,
                     tile_schedule(assembly.problem, assembly.tiles, assembly.kernel.tiling,
                                   head_group_mb, later_see_more(assembly.shape)));
}

LaunchWork launch_work(const Assembly& assembly) {
  static const DeviceFacts kAny{};
  return launch_work(assembly, kAny);
}

void add_parts(Argument& argument, const LaunchWork& work, const Part* of_step) {
  for (const Part* part : work.assembly.in_argument) {
    if (of_step == nullptr || part->steps_have_it || part == of_step) part->add(argument, work);
  }
}

Launch launch_of(const LaunchWork& work, std::span<LaunchStep> own) {
  const std::span parts(work.assembly.parts.list.data(), work.assembly.parts.count);
  Launch launch;
  launch.workspace_bytes = work.workspace_bytes;
  launch.steps.reserve(own.size() + 4);
  for (const Part* part : parts) {
    for (const Step& step : part->steps) {
      if (!step.after) add_step(launch.steps, work, *part, step);
    }
  }
  for (LaunchStep& step : own) {
    step.overlaps_previous = true;
    launch.steps.push_back(std::move(step));
  }
  const std::size_t before = launch.steps.size();
  for (std::size_t i = parts.size(); i-- > 0;) {
    for (const Step& step : parts[i]->steps) {
      if (step.after) add_step(launch.steps, work, *parts[i], step);
    }
  }
  // Where there is no kernel, and no step before it, the first one is in its place.
  launch.steps_after = launch.steps.size() - before + (own.empty() ? 0 : own.size() - 1);
  if (before == 0 && !launch.steps.empty()) --launch.steps_after;
  for (std::size_t i = 0; i < launch.steps.size(); ++i)
    launch.steps[i].overlaps_previous &= i > 0 && work.device.arch.sm >= 90;
  return launch;
}

Launch launch_of_tiles(const LaunchWork& work, LaunchStep step) {
  if (work.tiles.all_tiles() == 0) return {};
  ATTNFORGE_ASSERT(work.tiles.all_tiles() <= kMaxGridX, "supports() lets no larger grid through");
  return launch_of(work, {&step, 1});
}

}  // namespace attnforge
