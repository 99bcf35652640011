// error.cpp - names of error codes, and the error of a broken promise.

#include <fmt/format.h>

#include "attnforge/printable.h"
#include "generator/text/enum_names.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

// Twice what is quoted of a compiler's log; the C API keeps 8 KiB of a text.
constexpr std::size_t kMostMessageBytes = 8000;

std::string shown(const std::string& message) {
  std::string text = printable_lines(message);
  if (text.size() <= kMostMessageBytes) return text;
  std::size_t end = kMostMessageBytes;
  while ((text[end] & 0xC0) == 0x80) --end;  // not in the middle of a character
  text.resize(end);
  return text + fmt::format("... (cut short: {} bytes in all)", message.size());
}

}  // namespace

Error::Error(ErrorCode code, const std::string& message)
    : std::runtime_error(shown(message)), code_(code) {}

std::string_view to_string(ErrorCode code) {
  constexpr std::string_view kNames[] = {"invalid_problem",
                                         "invalid_argument",
                                         "unsupported",
                                         "not_ready",
                                         "compile",
                                         "no_driver",
                                         "cuda",
                                         "cache",
                                         "io",
                                         "internal"};
  static_assert(std::size(kNames) == static_cast<std::size_t>(ErrorCode::kInternal) + 1);
  return name_in(kNames, code);
}

void assertion_failed(const char* condition, const char* why, const char* file, int line) {
  // The folders above the file differ from machine to machine and say nothing.
  std::string_view name(file);
  name.remove_prefix(name.rfind('/') + 1);  // npos + 1 is 0
  throw_error(ErrorCode::kInternal,
              "internal error: {} ({} is false at {}:{}); please report this message", why,
              condition, name, line);
}

}  // namespace attnforge
