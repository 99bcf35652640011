// inspect.h - the page of attnforge inspect --html: what it needs, and as HTML. Pure.
#pragma once

#include <string>

#include "attnforge/inspect.h"
#include "cli/output/mask_drawing.h"

namespace attnforge::cli {

/// Options with which inspect() gathers what the page shows.
InspectOptions page_options(InspectOptions options);

/// `inspection` of page_options(); `made`: date, ISO 8601. The page's data has what inspect --json
/// --candidates 0 prints as "inspect", but for ptx and sass, which are listings: {"text": lines,
/// "origin": of each line, "origins": lines of the source}; and the drawing as of add_picture().
std::string inspect_page(const Inspection& inspection, const Drawing& drawing,
                         const std::string& made);

}  // namespace attnforge::cli
