#include "cli/terminal/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace attnforge::cli {
namespace {

std::string painted(const std::string& text, const char* code) {
  static const bool colour = use_colour(stdout);
  return colour ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
}

}  // namespace

bool is_terminal(std::FILE* stream) { return isatty(fileno(stream)) == 1; }

int terminal_columns(std::FILE* stream) {
  winsize size{};
  if (ioctl(fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  const char* columns = secure_getenv("COLUMNS");
  int number = 0;
  if (columns) std::from_chars(columns, columns + std::strlen(columns), number);
  return number > 0 ? number : 80;
}

bool use_colour(std::FILE* stream) {
  const char* no_color = secure_getenv("NO_COLOR");
  if (no_color && *no_color) return false;
  const char* term = secure_getenv("TERM");
  return is_terminal(stream) && term && std::strcmp(term, "dumb") != 0;
}

std::string bold(const std::string& text) { return painted(text, "1"); }
std::string green(const std::string& text) { return painted(text, "32"); }
std::string yellow(const std::string& text) { return painted(text, "33"); }
std::string red(const std::string& text) { return painted(text, "31"); }

}  // namespace attnforge::cli
