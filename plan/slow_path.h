// slow_path.h - whether a problem pays dearly for something about its tensors that is easily
// changed. Pure.
#pragma once

#include <string>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/overrides.h"

namespace attnforge {

/// "": it does not. Else one line: which family serves `problem`, how much slower than another one
/// would be by their models, and what has to be changed for that: dtypes that differ, tensors that
/// are not aligned to 16 bytes. The simplest change that gains nearly all there is to gain. Some
/// tens of ms where there is something to change, else nothing.
std::string slow_path(const Problem& problem, const DeviceFacts& device,
                      const Overrides& overrides = {});

}  // namespace attnforge
