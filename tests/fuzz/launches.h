// launches.h - what must hold of every launch that a family asks for.
#pragma once

#include "generator/family.h"

namespace attnforge::fuzz {

/// Calls broken() unless a GPU of `device` can launch all steps, their kernels are in `source`, and
/// what a run fills in lies in their arguments.
void require_sound(const Launch& launch, const Source& source, const Problem& problem,
                   const DeviceFacts& device);

}  // namespace attnforge::fuzz
