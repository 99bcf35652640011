#include "cli/terminal/messages.h"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>

#include "attnforge/printable.h"

namespace attnforge::cli {
namespace {

void write(std::FILE* file, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

std::string message_text(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  std::string lines = printable_lines(text);
  for (std::size_t at = lines.find('\n'); at != lines.npos; at = lines.find('\n', at + 3))
    lines.insert(at + 1, "  ");
  return lines;
}

void say(std::string_view text) noexcept {
  try {
    write(stderr, message_text(text) + "\n");
  } catch (...) {  // no memory
    write(stderr, "attnforge: a message does not fit into memory\n");
  }
  std::fflush(stderr);
}

void write_out(std::string_view text) noexcept {
  write(stdout, text);
  std::fflush(stdout);
}

void hold_standard_files() {
  for (const int file : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(file, F_GETFD) != -1) continue;
    // For the wrong direction: what is written must fail, not vanish. open() takes the least free
    // number.
    if (open("/dev/null", file == STDIN_FILENO ? O_WRONLY : O_RDONLY) != file) return;
  }
}

}  // namespace attnforge::cli
