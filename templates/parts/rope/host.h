// host.h - a family that serves a rope without knowing of one: a step before its kernel writes
// q and k, rotated, to the workspace, and the kernel, which is that of the problem without a rope,
// reads them there.
#pragma once

#include <string>
#include <utility>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/problem/features.h"
#include "generator/source.h"
#include "templates/host/argument.h"
#include "templates/host/step_before.h"
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

/// The step, for families that have no rope among their features.
inline constexpr StepBefore kRotation{
    .features = kFeatureRope,
    .needed = [](const Problem& p) { return !plain(p); },
    .after = without_rope,
    .unserved = too_much_to_rotate,
    .us = rotation_us,
    .add_source = with_rotation,
    .add_launch = [](Launch launch, const Problem& p,
                     const DeviceFacts&) { return with_rotation(std::move(launch), p); }};

}  // namespace attnforge
