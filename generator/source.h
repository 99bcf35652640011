// source.h - a kernel's source text, complete in itself, and how it is put together from the
// template headers.
#pragma once

#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnforge/assembly_info.h"
#include "generator/config.h"

namespace attnforge {

/// What a header adds to Source::code, made when it is first needed: sources are rendered from
/// it often. Thread-safe.
class LazyCode {
 public:
  /// `text` is the header's, the same each time.
  const std::optional<std::string>& of(std::string_view text);

 private:
  std::once_flag once_;
  std::optional<std::string> code_;
};

/// A template header: path below templates/, e.g. "tile/softmax.cuh", and its bytes.
struct Header {
  std::string_view path;
  std::string_view text;
  LazyCode* code = nullptr;  // borrowed; null: made each time
};

struct Source {
  std::string name;  // kernel symbol: family, dtype, head dims, tile
  std::string
      entry;  // the generated lines: config text, #include of kernel.cuh, config value, entry point
  std::string text;    // entry with every reachable header in its place, once: what is compiled, by
                       // stock nvcc too
  std::string code{};  // of entry and headers what the digest is made of; "": all of the text
  std::vector<std::string> options;  // compiler options in addition to arch and standard
  std::vector<std::pair<std::string, std::string>>
      renamed{};  // kernels that LaunchStep::kernel calls otherwise than the text: its name, theirs
  AssemblyInfo assembly{};
  bool users_code = false;  // a user's texts are in it, which may keep a compiler busy for ever
};

/// Sets source.text and source.code from source.entry: replaces `#include "path"` lines by the
/// header's text, each header once, recursively; drops #pragma once. The code is code_text() of the
/// entry and of each header in the order of their places, or the text where one of them has none;
/// without names of headers in both. Throws Error(kInternal) for a path that is not among
/// `headers`.
void flatten(Source& source, std::span<const Header> headers);

/// Digest of what a compile depends on besides the compiler: code and options. An edit of comments
/// or blank space leaves it; sources of equal digest mean the same. 32 hex digits (XXH3-128).
std::string digest(const Source& source);
/// The same of any bytes.
std::string digest_of(std::string_view bytes);

}  // namespace attnforge
