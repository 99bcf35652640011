// json.h - the library's nouns as JSON text: the dialect of C, Python and the command line.
// docs/JSON.md has every key: some are added, none renamed.
#pragma once

#include <string>

#include "attnforge/inspect.h"

namespace attnforge {

/// Indented by two; text that is not UTF-8 (a compiler's log may hold some) is replaced.
ATTNFORGE_API std::string to_json(const DeviceFacts& device);
ATTNFORGE_API std::string to_json(const Trial& trial);
ATTNFORGE_API std::string to_json(const CompileInfo& compiled);
ATTNFORGE_API std::string to_json(const LaunchInfo& launch);
ATTNFORGE_API std::string to_json(const TileInfo& tiles);
ATTNFORGE_API std::string to_json(const Inspection& inspection);
/// `asked`: the problem that tune() was given; result.problem is that of its bucket.
ATTNFORGE_API std::string to_json(const TuneResult& result, const Problem& asked,
                                  const DeviceFacts& device);

}  // namespace attnforge
