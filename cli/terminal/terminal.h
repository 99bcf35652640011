// terminal.h - what is on the other side of the standard streams, and what is said there past the
// usual way: nothing that writes here throws, however those files are. And Ctrl-C.
#pragma once

#include <cstdio>
#include <string>
#include <string_view>

namespace attnforge::cli {

bool is_terminal(std::FILE* stream);

/// Asked anew at each call, since windows are resized. 80 where it is unknown.
int terminal_columns(std::FILE* stream);

/// The same, at least 40: what lines are wrapped to.
std::size_t columns_to_fill(std::FILE* stream);

/// `text` for standard output: in bold, green, yellow or red on a terminal that can, unless
/// NO_COLOR is set and not empty (no-color.org), else as it is.
std::string bold(const std::string& text);
std::string green(const std::string& text);
std::string yellow(const std::string& text);
std::string red(const std::string& text);

/// `text` with so many blanks before all lines but the first.
std::string hanging(std::string text, std::size_t blanks);

/// Of a help, on a terminal or not: those of the terminal from 40 to 120.
std::size_t help_columns();

/// A help text without lines longer than `columns`, where a blank allows it: paragraphs are filled,
/// what explains an option stays in its column, and examples are as they are, to be copied.
std::string wrapped_help(std::string_view text, std::size_t columns);

/// Output without lines longer than `columns`, where a blank allows it: what does not fit goes on
/// below the last cell of its line, or indented. A command that is cut goes on after a backslash,
/// so that it can be copied. Colours take no columns.
std::string wrapped(std::string_view text, std::size_t columns);

/// `text`, printable (attnforge/printable.h); all lines but the first are indented, so that none
/// can pass for a message of its own.
std::string message_text(std::string_view text);

/// Writes message_text() and a newline to standard error. What cannot be written is lost: there is
/// no one to tell.
void say(std::string_view text) noexcept;

/// To standard output, on a terminal wrapped() to its columns. What cannot be written shows in
/// std::ferror(stdout), at the program's end.
void write_out(std::string_view text) noexcept;

/// Opens what of descriptors 0 to 2 is closed, so that no file that is opened later becomes
/// standard output or error. Reading and writing them fails as before.
void hold_standard_files();

/// While it lives, the first SIGINT (Ctrl-C) or SIGTERM is only noted, to stop and keep what is
/// done; the second ends the program at once. One at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
};

/// Whether one was noted since the last scope began.
bool interrupted();

}  // namespace attnforge::cli
