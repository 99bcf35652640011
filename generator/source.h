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
  std::string_view code{};  // code_text(text) where it is known; null: not computed
};

/// Headers that are rendered from often: their code is computed once, here. Borrows the texts.
class CodedHeaders {
 public:
  explicit CodedHeaders(std::span<const Header> headers);
  CodedHeaders(const CodedHeaders&) = delete;
  CodedHeaders& operator=(const CodedHeaders&) = delete;

  std::span<const Header> headers() const { return headers_; }

 private:
  std::vector<std::string> code_;
  std::vector<Header> headers_;
};

struct Source {
  std::string name;  // kernel symbol: family, dtype, head dims, tile
  std::string
      entry;  // the generated lines: config text, #include of kernel.cuh, config value, entry point
  std::string text;    // entry with every reachable header in its place, once: what is compiled, by
                       // stock nvcc too
  std::string code{};  // of entry and headers what the digest is made of; "": all of the text
  std::vector<std::string> options;  // compiler options beside arch and standard
  std::vector<std::pair<std::string, std::string>>
      renamed{};  // kernels that LaunchStep::kernel calls otherwise than the text: its name, theirs
};

/// Sets source.text and source.code from source.entry: replaces `#include "path"` lines by the
/// header's text, each header once, recursively; drops #pragma once. The code is code_text() of the
/// entry and of each header in the order of their places, or "" where one of them has none. Throws
/// Error(kInternal) for a path that is not among `headers`.
void flatten(Source& source, std::span<const Header> headers);

/// Digest of what a compile depends on besides the compiler: code and options. An edit of comments
/// or blank space leaves it; sources of equal digest mean the same. 32 hex digits (XXH3-128).
std::string digest(const Source& source);

}  // namespace attnforge
