// host.h - a family of 16 bits that serves caches of fewer without knowing of them: a step
// before its kernel writes k and v in q's dtype to the workspace.
#pragma once

#include <string>
#include <utility>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/launch.h"
#include "generator/problem/features.h"
#include "generator/reason.h"
#include "generator/source.h"
#include "templates/host/step_before.h"

namespace attnforge {

/// Whether a problem needs the step: q has 16 bits, k or v fewer.
bool widens(const Problem& problem);

/// The problem of the kernel after the step. Keys in pages lie in order there; but in pages of 128
/// where queries are packed, whose keys are not.
Problem widened(const Problem& problem);

/// "" or why the step is not for a problem: few queries read codes themselves sooner, and a batch
/// of any size has no room for it.
std::string not_to_widen(const Problem& problem);

/// Of each 16 bytes of the GPU's memory the step takes one at most.
Reason too_much_to_widen(const Problem& problem, const DeviceFacts& device);

/// What the step takes, by the bytes that it reads and writes.
double widening_us(const Problem& problem, const DeviceFacts& device);

/// `source`, of a kernel for widened(problem), with the step's kernel.
Source with_widening(Source source, const Problem& problem);

/// `launch`, of that kernel, after the step.
Launch with_widening(Launch launch, const Problem& problem, const DeviceFacts& device);

/// For families with kFeatureLowBits, where q has as few.
inline constexpr StepBefore kWidening{.features = kFeatureLowBits,
                                      .needed = widens,
                                      .after = widened,
                                      .unserved = not_to_widen,
                                      .illegal = too_much_to_widen,
                                      .us = widening_us,
                                      .add_source = with_widening,
                                      .add_launch = with_widening};

}  // namespace attnforge
