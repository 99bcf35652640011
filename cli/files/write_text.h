// write_text.h - whole text files, written so that a reader never sees half of one.
#pragma once

#include <string>
#include <string_view>

namespace attnforge::cli {

/// Replaces the file `path` by `text` at once; what a link leads to, and a device, are written to
/// instead. "-": standard output. Throws Error(kIo) with the reason.
void write_text(const std::string& path, std::string_view text);

}  // namespace attnforge::cli
