// inspect.h - the page of attnforge inspect --html: what it shows, as JSON, and as HTML. Pure.
#pragma once

#include <string>

#include "attnforge/inspect.h"
#include "cli/output/json.h"
#include "cli/output/mask_drawing.h"

namespace attnforge::cli {

/// Options with which inspect() gathers what the page shows.
InspectOptions page_options(InspectOptions options);

/// `inspection` of page_options(); `made`: date, ISO 8601.
/// "inspect" in it is what inspect --json --candidates 0 prints, but for ptx and sass, which are
/// listings here: {"text": lines, "origin": of each line, "origins": lines of the source}.
/// What is drawn is as add_picture() puts it.
Json inspect_page_data(const Inspection& inspection, const Drawing& drawing,
                       const std::string& made);
std::string inspect_page(const Inspection& inspection, const Drawing& drawing,
                         const std::string& made);

}  // namespace attnforge::cli
