// json.h - the library's nouns as JSON text. The keys are the names of the structs' fields: some
// are added, none renamed.
#pragma once

#include <string>

#include "attnforge/inspect.h"

namespace attnforge {

/// Indented by two; text that is not UTF-8 (a compiler's log may hold some) is replaced.
std::string to_json(const DeviceFacts& device);
std::string to_json(const Trial& trial);
std::string to_json(const CompileInfo& compiled);
std::string to_json(const LaunchInfo& launch);
std::string to_json(const TileInfo& tiles);
std::string to_json(const Inspection& inspection);
std::string to_json(const TuneResult& result);

}  // namespace attnforge
