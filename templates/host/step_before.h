// step_before.h - a family that serves what it knows nothing of: a step before its kernel writes
// tensors to the workspace in a form that it knows, and the kernel, which is that of another
// problem, reads them there.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/family.h"
#include "generator/launch.h"
#include "generator/reason.h"
#include "generator/source.h"

namespace attnforge {

struct StepBefore {
  Features features = 0;                       // that a family has with it
  bool (*needed)(const Problem&) = nullptr;    // else the problem is the kernel's own
  Problem (*after)(const Problem&) = nullptr;  // the problem of the kernel after the step
  /// "" or why the step does not serve a problem.
  std::string (*unserved)(const Problem&) = nullptr;
  /// As Family::illegal, of every config; null: it has no such limits.
  Reason (*illegal)(const Problem&, const DeviceFacts&) = nullptr;
  /// What it takes.
  double (*us)(const Problem&, const DeviceFacts&) = nullptr;
  /// The source of the kernel, with the step's own.
  Source (*add_source)(Source, const Problem&) = nullptr;
  /// The launch of the kernel after the step. Its workspace grows from the end of the kernel's own
  /// on.
  Launch (*add_launch)(Launch, const Problem&, const DeviceFacts&) = nullptr;
};

/// kInner, which serves kStep.after(problem), as a family that serves the problem, with the same
/// configs.
template <const Family& kInner, const StepBefore& kStep>
Family with_step_before() {
  Family family = kInner;
  family.features |= kStep.features;
  family.supports = [](const Problem& p, const Arch& arch) {
    if (!kStep.needed(p)) return kInner.supports(p, arch);
    std::string reason = kInner.supports(kStep.after(p), arch);
    return reason.empty() ? kStep.unserved(p) : reason;
  };
  family.axes = [](const Problem& p, const DeviceFacts& device) {
    return kInner.axes(kStep.needed(p) ? kStep.after(p) : p, device);
  };
  family.illegal = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (!kStep.needed(p)) return kInner.illegal(config, p, device);
    std::string reason = kInner.illegal(config, kStep.after(p), device);
    return reason.empty() && kStep.illegal != nullptr ? kStep.illegal(p, device).text() : reason;
  };
  family.needless = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    return kInner.needless(config, kStep.needed(p) ? kStep.after(p) : p, device);
  };
  family.estimate_us = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (!kStep.needed(p)) return kInner.estimate_us(config, p, device);
    return kInner.estimate_us(config, kStep.after(p), device) + kStep.us(p, device);
  };
  if (kInner.spread != nullptr)
    family.spread = [](const Config& config, const Problem& p, const DeviceFacts& device) {
      return kInner.spread(config, kStep.needed(p) ? kStep.after(p) : p, device);
    };
  family.for_each_point = [](std::span<const Axis> axes, const Problem& p,
                             const DeviceFacts& device,
                             const std::function<void(const Point&)>& visit) {
    if (!kStep.needed(p)) return kInner.for_each_point(axes, p, device, visit);
    const double step_us = kStep.us(p, device);
    const Reason wrong = kStep.illegal == nullptr ? "" : kStep.illegal(p, device);
    kInner.for_each_point(axes, kStep.after(p), device, [&](const Point& point) {
      Point whole = point;
      if (whole.cut.empty()) whole.cut = wrong;
      whole.estimate_us += step_us;
      visit(whole);
    });
  };
  family.tile_shape = [](const Config& config, const Problem& p) {
    return kInner.tile_shape(config, kStep.needed(p) ? kStep.after(p) : p);
  };
  family.render = [](const Config& config, const Problem& p) {
    if (!kStep.needed(p)) return kInner.render(config, p);
    return kStep.add_source(kInner.render(config, kStep.after(p)), p);
  };
  family.launch = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (!kStep.needed(p)) return kInner.launch(config, p, device);
    return kStep.add_launch(kInner.launch(config, kStep.after(p), device), p, device);
  };
  return family;
}

}  // namespace attnforge
