// page_inspect.h - the page of attnforge inspect --html: what it shows, as JSON, and as HTML. Pure.
#pragma once

#include <optional>
#include <string>

#include "attnforge/inspect.h"
#include "cli/json.h"
#include "cli/mask_files.h"

namespace attnforge::cli {

/// Options with which inspect() gathers what the page shows.
InspectOptions page_options(InspectOptions options);

/// `inspection` of page_options(); `made`: date, ISO 8601.
/// "inspect" in it is what inspect --json --candidates 0 prints, but for ptx and sass, which are
/// listings here: {"text": lines, "origin": of each line, "origins": lines of the source}.
/// "block_mask" is mask_json() with its picture, or null.
Json inspect_page_data(const Inspection& inspection, const std::optional<ShownMask>& mask,
                       const std::string& made);
std::string inspect_page(const Inspection& inspection, const std::optional<ShownMask>& mask,
                         const std::string& made);

/// What --json says of a mask: its counts, and "merged", merged_blocks() of the config's tiles.
Json mask_json(const ShownMask& mask, const TileInfo& tiles);

}  // namespace attnforge::cli
