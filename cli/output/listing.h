// listing.h - machine code or PTX as lines, each with the lines of the source that it comes from.
// Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace attnforge::cli {

struct Listing {
  /// Lines of the source, numbered from 1: of a function first, then of the call that it was
  /// inlined into, and so on outwards. Each list once.
  std::vector<std::vector<int>> origins;
  struct Line {
    int origin = -1;  // into origins; -1: not known
    std::string text;
  };
  std::vector<Line> lines;  // instructions, and the labels that some instruction names
};

/// The listing of `nvdisasm --print-code --print-line-info-inline`; without the second option, and
/// from cuobjdump, no origin is known.
Listing sass_listing(std::string_view text);

/// The listing of NVRTC's PTX, with line info or without: what stands between the braces of
/// functions.
Listing ptx_listing(std::string_view text);

}  // namespace attnforge::cli
