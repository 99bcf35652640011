// terminal.h - what is on the other side of an output stream.
#pragma once

#include <cstdio>
#include <string>

namespace attnforge::cli {

bool is_terminal(std::FILE* stream);

/// Asked anew at each call, since windows are resized. 80 where it is unknown.
int terminal_columns(std::FILE* stream);

/// On a terminal that can, unless NO_COLOR is set and not empty (no-color.org).
bool use_colour(std::FILE* stream);

/// `text` for standard output: in bold, green, yellow or red where colours are used, else as it is.
std::string bold(const std::string& text);
std::string green(const std::string& text);
std::string yellow(const std::string& text);
std::string red(const std::string& text);

}  // namespace attnforge::cli
