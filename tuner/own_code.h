// own_code.h - machine code of the tuner's own kernels: of its instruments, and of a problem's
// oracles.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "attnforge/device.h"
#include "attnforge/problem.h"
#include "generator/cubin.h"
#include "generator/source.h"

namespace attnforge {

/// By the digest of the source.
using OwnCode = std::map<std::string, Cubin>;

/// What trials of `problem` run beside its candidates.
std::vector<Source> own_sources(const Problem& problem, const DeviceFacts& device);
/// As `code` has it, else compiled. Throws as compile().
Cubin code_of(const OwnCode& code, const Source& source, const Arch& arch);

}  // namespace attnforge
