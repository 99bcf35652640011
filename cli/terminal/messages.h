// messages.h - what goes to standard error and standard output past the usual way: nothing here
// throws, however those files are.
#pragma once

#include <string>
#include <string_view>

namespace attnforge::cli {

/// `text`, printable (attnforge/printable.h); all lines but the first are indented, so that none
/// can pass for a message of its own.
std::string message_text(std::string_view text);

/// Writes message_text() and a newline to standard error. What cannot be written is lost: there is
/// no one to tell.
void say(std::string_view text) noexcept;

/// To standard output. What cannot be written shows in std::ferror(stdout), at the program's end.
void write_out(std::string_view text) noexcept;

/// Opens what of descriptors 0 to 2 is closed, so that no file that is opened later becomes
/// standard output or error. Reading and writing them fails as before.
void hold_standard_files();

}  // namespace attnforge::cli
