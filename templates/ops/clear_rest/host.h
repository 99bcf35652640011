// host.h - the source and the launch of the kernel that clears rows after packed sequences.
#pragma once

#include <span>

#include "generator/launch.h"
#include "generator/source.h"
#include "templates/ops/clear_rest/params.h"

namespace attnforge {

Source clear_rest_source();
/// Of 1 to kMostToClear arrays, none without bytes.
LaunchStep clear_rest_step(std::span<const RowsToClear> arrays, int num_sms);

}  // namespace attnforge
