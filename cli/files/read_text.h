// read_text.h - whole text files, within bounds: a path may be that of a device without an end.
#pragma once

#include <string>

namespace attnforge::cli {

/// The file `path`, "-": standard input. `what` it is goes into messages ("problem file"). Throws
/// Error(kIo) if it cannot be read, is a folder, or is larger than 64 MiB.
std::string read_text(const std::string& path, const std::string& what);

}  // namespace attnforge::cli
