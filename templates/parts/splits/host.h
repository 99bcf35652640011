// host.h - the partial results of a kernel whose query tiles have several blocks each.
#pragma once

#include "templates/host/launch_work.h"
#include "templates/parts/splits/params.h"

namespace attnforge {

/// The partial results of a launch: addresses are bytes from the start of the workspace.
PartialParams partial_params(const LaunchWork& work);

}  // namespace attnforge
