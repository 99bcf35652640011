// cubins.h - machine code for a source: from the database, or compiled now and put there.
#pragma once

#include <optional>
#include <string>

#include "cache/cache.h"
#include "generator/cubin.h"
#include "generator/source.h"
#include "runtime/log.h"

namespace attnforge {

/// Code that was compiled before from the same source for the same arch; by `nvrtc` (a version
/// text) rather than by another,
/// "": by any. Opens no compiler. Never throws for a broken database.
std::optional<Cubin> stored_cubin(const std::string& source_digest, const Arch& arch,
                                  const std::string& nvrtc, Cache& cache);

/// Throws Error(kCompile), Error(kNoDriver) without NVRTC. A database that cannot be written is a
/// log line.
Cubin compile_and_store(const Source& source, const Arch& arch, Cache& cache, const Logger& log);

class DeviceState;
/// The same for a GPU, counted in its stats.
Cubin compile_and_store(const Source& source, DeviceState& state);

}  // namespace attnforge
