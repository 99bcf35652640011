// text_files.h - whole text files: read within bounds, since a path may be that of a device without
// an end, and written so that a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>

namespace attnforge::cli {

/// The file `path`, "-": standard input. `what` it is goes into messages ("problem file"). Throws
/// Error(kIo) if it cannot be read, is a folder, or is larger than 64 MiB.
std::string read_text(const std::string& path, const std::string& what);

/// Replaces the file `path` by `text` at once; what a link leads to, and a device, are written to
/// instead. "-": standard output. Throws Error(kIo) with the reason.
void write_text(const std::string& path, std::string_view text);

/// To the end of a file. Throws Error(kIo) with the reason.
void append_text(const std::string& path, std::string_view text);

/// What errno says, or `unknown`.
std::string errno_text(const char* unknown = "unknown reason");

/// Throws Error(kIo): the path "cannot be read" or "written", and what errno says.
[[noreturn]] void refuse_file(std::string_view path, std::string_view done);

}  // namespace attnforge::cli
