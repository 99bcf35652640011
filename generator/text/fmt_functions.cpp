// fmt_functions.cpp - the functions of {fmt} that are not templates, compiled once. Everywhere else
// only their declarations are read, which halves the time of most files. Not libfmt itself: a built
// library then runs where that is not installed.
#include <fmt/format.h>

namespace attnforge {

// What the templates of fmt's headers call; CMake has every inline function of this file emitted.
std::string formatted(fmt::string_view format, fmt::format_args args) {
  return fmt::vformat(format, args);
}
void print(fmt::string_view format, fmt::format_args args) { fmt::vprint(format, args); }
void print(std::FILE* file, fmt::string_view format, fmt::format_args args) {
  fmt::vprint(file, format, args);
}
[[noreturn]] void refuse(const char* why) { throw fmt::format_error(why); }

}  // namespace attnforge
