// page.h - pages of HTML that need nothing but themselves: a template of cli/page/ with its styles,
// its scripts and one block of JSON. Pure.
#pragma once

#include <string>
#include <string_view>

#include "cli/output/json.h"

namespace attnforge::cli {

/// A file of cli/page/ by its name. Embedded in the program by cli/page/embed.cmake. Throws
/// Error(kInternal) for a name that there is none of.
std::string_view page_file(std::string_view name);

/// `text` between tags or in an attribute's quotes.
std::string html_text(std::string_view text);

/// For a script element: in ASCII, and without the characters that could end the element or begin a
/// comment in it. Text that is not UTF-8 is replaced.
std::string json_block(const Json& data);

/// The template `name` with @title@ and @data@ filled in, and @FILE.css@ and @FILE.js@ replaced by
/// those files. Nothing that `title` or `data` holds can become markup.
std::string page(std::string_view name, std::string_view title, const Json& data);

}  // namespace attnforge::cli
