// slow_path.h - whether a problem is served worse than it could be: by no product, or for something
// about its tensors that is easily changed.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/overrides.h"
#include "plan/device_state.h"

namespace attnforge {

/// "": it is not, or a family is forced. Else one line: which family serves `problem`, how much
/// slower than another one would be by their models, and what has to be changed for that: dtypes
/// that differ, tensors that are not aligned to 16 bytes. The simplest change that gains nearly all
/// there is to gain. Where no product serves there is always a line, with the products' reasons if
/// no change helps. Some tens of ms where there is something to change or no product, else nothing.
/// Pure.
std::string slow_path(const Problem& problem, const DeviceFacts& device,
                      const Overrides& overrides = {});

/// Logs slow_path(), once for each bucket, unless the kernel was forced.
void warn_of_slow_path(const ChoiceKey& key, DeviceState& state);

}  // namespace attnforge
