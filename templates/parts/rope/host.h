// host.h - a family that serves a rope without knowing of one: a step before its kernel writes
// q and k, rotated, to the workspace, and the kernel, which is that of the problem without a rope,
// reads them there.
#pragma once

#include <functional>
#include <span>
#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/family.h"
#include "generator/launch.h"
#include "generator/source.h"
#include "templates/host/argument.h"
#include "templates/parts/rope/params.h"

namespace attnforge {

/// Whether it needs no step.
inline bool plain(const Problem& problem) { return problem.rope == Rope::kNone; }

/// The problem of the kernel after the step.
Problem without_rope(const Problem& problem);

/// The tables of a run, and their rows of query 0 and key 0. In q_offset before: the position of
/// query 0, which is seqlen_kv - seqlen_q.
void bind_rope(RopeParams& rope, const Tensors& tensors, const RunMemory& memory);

/// RopeParams, which each run fills in; zeros if the problem has no rope.
Argument& add_rope(Argument& argument, const Problem& problem);

/// "" or why the step cannot be launched.
std::string too_much_to_rotate(const Problem& problem);

/// What the step takes, by the bytes that it reads and writes.
double rotation_us(const Problem& problem, const DeviceFacts& device);

/// `source`, of a kernel for without_rope(problem), with the step's kernel.
Source with_rotation(Source source, const Problem& problem);

/// `launch`, of that kernel, after the step. Its workspace grows by what q and k take: from the end
/// of the kernel's own on.
Launch with_rotation(Launch launch, const Problem& problem);

/// kInner, which has no rope among its features, as a family that has.
template <const Family& kInner>
constexpr Family rotated_family() {
  Family family = kInner;
  family.features |= kFeatureRope;
  family.supports = [](const Problem& p, const Arch& arch) {
    if (plain(p)) return kInner.supports(p, arch);
    std::string reason = kInner.supports(without_rope(p), arch);
    return reason.empty() ? too_much_to_rotate(p) : reason;
  };
  family.illegal = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (plain(p)) return kInner.illegal(config, p, device);
    return kInner.illegal(config, without_rope(p), device);
  };
  family.needless = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (plain(p)) return kInner.needless(config, p, device);
    return kInner.needless(config, without_rope(p), device);
  };
  family.estimate_us = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (plain(p)) return kInner.estimate_us(config, p, device);
    return kInner.estimate_us(config, without_rope(p), device) + rotation_us(p, device);
  };
  family.for_each_point = [](std::span<const Axis> axes, const Problem& p,
                             const DeviceFacts& device,
                             const std::function<void(const Point&)>& visit) {
    if (plain(p)) return kInner.for_each_point(axes, p, device, visit);
    const double step_us = rotation_us(p, device);
    kInner.for_each_point(axes, without_rope(p), device, [&](const Point& point) {
      if (!point.cut.empty()) return visit(point);
      visit({.values = point.values, .cut = {}, .estimate_us = point.estimate_us + step_us});
    });
  };
  family.render = [](const Config& config, const Problem& p) {
    if (plain(p)) return kInner.render(config, p);
    return with_rotation(kInner.render(config, without_rope(p)), p);
  };
  family.launch = [](const Config& config, const Problem& p, const DeviceFacts& device) {
    if (plain(p)) return kInner.launch(config, p, device);
    return with_rotation(kInner.launch(config, without_rope(p), device), p);
  };
  return family;
}

}  // namespace attnforge
