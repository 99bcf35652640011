// source.h - a kernel's source text, complete in itself, and how it is put together from the
// template headers.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "generator/config.h"

namespace attnforge {

/// A template header: path below templates/, e.g. "tile/softmax.cuh", and its bytes.
struct Header {
  std::string_view path;
  std::string_view text;
};

struct Source {
  std::string name;  // kernel symbol: family, dtype, head dims, tile
  std::string
      entry;  // the generated lines: config text, #include of kernel.cuh, config value, entry point
  std::string text;  // entry with every reachable header in its place, once: what is compiled, by
                     // stock nvcc too
  std::vector<std::string> options;  // compiler options beside arch and standard
  std::vector<std::pair<std::string, std::string>>
      renamed{};  // kernels that LaunchStep::kernel calls otherwise than the text: its name, theirs
};

/// Replaces `#include "path"` lines by the header's text, each header once, recursively; drops
/// #pragma once. Throws Error(kInternal) for a path that is not among `headers`.
std::string self_contained(std::string_view entry, std::span<const Header> headers);

/// Digest of what a compile depends on besides the compiler: text and options. 32 hex digits
/// (XXH3-128).
std::string digest(const Source& source);

}  // namespace attnforge
