// printable.h - text of files, databases and environments made fit to be shown: nothing in it can
// steer a terminal or pass for a line of its own.
#pragma once

#include <string>
#include <string_view>

#include "attnforge/cxx20.h"

namespace attnforge {

/// `text` as one line of UTF-8: control characters (ESC, newlines, C1), characters that turn the
/// direction of writing, and bytes that are not UTF-8 become \n, \t or \x1b and the like.
ATTNFORGE_API std::string printable(std::string_view text);

/// Printable text in which newlines stay and tabs are blanks: for compilers' logs and messages of
/// several lines.
ATTNFORGE_API std::string printable_lines(std::string_view text);

}  // namespace attnforge
