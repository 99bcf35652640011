// compile_info.h - what the compiler made of a config, for people.
#pragma once

#include "attnforge/inspect.h"
#include "generator/cubin.h"
#include "generator/launch.h"

namespace attnforge {

/// Registers, spills, shared memory, and how many blocks of the config's own kernel an SM holds.
CompileInfo describe(const Cubin& cubin, const Launch& launch, const Arch& arch);

}  // namespace attnforge
