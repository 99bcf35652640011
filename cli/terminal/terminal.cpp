#include "cli/terminal/terminal.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "attnforge/printable.h"

namespace attnforge::cli {
namespace {

/// On a terminal that can, unless NO_COLOR is set and not empty (no-color.org).
bool has_colours(std::FILE* stream) {
  const char* no_color = secure_getenv("NO_COLOR");
  if (no_color && *no_color) return false;
  const char* term = secure_getenv("TERM");
  return is_terminal(stream) && term && std::strcmp(term, "dumb") != 0;
}

std::string painted(const std::string& text, const char* code) {
  static const bool colour = has_colours(stdout);
  return colour ? std::string("\x1b[") + code + "m" + text + "\x1b[0m" : text;
}

void write_to(std::FILE* file, std::string_view text) noexcept {
  std::fwrite(text.data(), 1, text.size(), file);
}

constexpr std::size_t kHelpIndent = 30;  // of what explains an option, as CLI11 has it

/// Adds a line of a help, in lines of at most `columns` where blanks allow it.
void add_wrapped(std::string& text, std::string_view line, std::size_t columns) {
  const std::size_t indent = line.starts_with("  ") ? kHelpIndent : 0;
  for (std::size_t used = 0; used + line.size() > columns; used = indent) {
    std::size_t end = line.rfind(' ', columns - used);
    if (end == line.npos || line.find_first_not_of(' ') > end) end = line.find(' ', columns - used);
    if (end == line.npos) break;
    text.append(line.substr(0, line.find_last_not_of(' ', end) + 1)).append(1, '\n');
    text.append(indent, ' ');
    line.remove_prefix(std::min(line.find_first_not_of(' ', end), line.size()));
  }
  text.append(line).append(1, '\n');
}

/// Columns that a line takes: escape sequences of colours take none.
std::size_t columns_of(std::string_view line) {
  std::size_t columns = 0;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] == '\x1b')
      i = std::min(line.find('m', i), line.size());
    else
      ++columns;
  }
  return columns;
}

/// Where what does not fit in a line goes on: below its last cell, cells being two blanks or more
/// apart, if that leaves half of the columns; else a little after its first word.
std::size_t hanging_indent(std::string_view line, std::size_t columns) {
  const std::size_t first = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.rfind("  ");
  if (gap != line.npos && gap > first) {
    const std::size_t cell = columns_of(line.substr(0, gap + 2));
    if (cell <= columns / 2) return cell;
  }
  return std::min(first + 4, columns / 2);
}

/// From where on a line is a command to be copied; npos: nowhere.
std::size_t command_in(std::string_view line) {
  for (const char* verb :
       {"attnforge tune ", "attnforge bench ", "attnforge run ", "attnforge inspect "})
    if (const std::size_t at = line.find(verb); at != line.npos) return at;
  return line.npos;
}

void add_wrapped_line(std::string& text, std::string_view line, std::size_t columns) {
  if (columns_of(line) <= columns) {
    text += line;
    return;
  }
  const std::size_t indent = hanging_indent(line, columns), command = command_in(line);
  std::size_t used = 0;
  for (std::size_t at = 0; at < line.size();) {
    const std::size_t word = std::min(line.find_first_not_of(' ', at), line.size());
    const std::size_t end = std::min(line.find(' ', word), line.size());
    const bool in_command = command != line.npos && word > command;
    const std::size_t most = columns - (in_command && end < line.size() ? 2 : 0);
    const std::size_t taken = columns_of(line.substr(at, end - at));
    if (used > indent && used + taken > most) {
      text.append(in_command ? " \\\n" : "\n").append(indent, ' ');
      used = indent;
      at = word;
      continue;
    }
    text += line.substr(at, end - at);
    used += taken;
    at = end;
  }
}

// Any thread may get the signal, and one a GPU asks: a sig_atomic_t is for one thread alone.
std::atomic<bool> noted = false;
static_assert(std::atomic<bool>::is_always_lock_free, "else it may not be set in a signal handler");
struct sigaction previous_int, previous_term;

void note(int) { noted = true; }

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

std::size_t columns_to_fill(std::FILE* stream) {
  return static_cast<std::size_t>(std::max(terminal_columns(stream), 40));
}

std::size_t help_columns() { return std::min<std::size_t>(columns_to_fill(stdout), 120); }

std::string bold(const std::string& text) { return painted(text, "1"); }
std::string green(const std::string& text) { return painted(text, "32"); }
std::string yellow(const std::string& text) { return painted(text, "33"); }
std::string red(const std::string& text) { return painted(text, "31"); }

std::string hanging(std::string text, std::size_t blanks) {
  for (std::size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1))
    text.insert(at + 1, blanks, ' ');
  return text;
}

std::string wrapped_help(std::string_view text, std::size_t columns) {
  std::string wrapped, paragraph;
  bool examples = false;
  const auto flush = [&] {
    if (!paragraph.empty()) add_wrapped(wrapped, std::exchange(paragraph, ""), columns);
  };
  while (!text.empty()) {
    const std::size_t size = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, size);
    text.remove_prefix(std::min(size + 1, text.size()));
    examples = examples || line == "Examples:";
    if (examples || line.empty() || line.front() == ' ') {
      flush();
      if (examples || line.size() <= columns) {
        wrapped.append(line).append(1, '\n');
      } else {
        add_wrapped(wrapped, line, columns);
      }
      continue;
    }
    if (line.starts_with("Usage:")) flush();
    paragraph.append(paragraph.empty() ? "" : " ").append(line);
    if (line.ends_with('.') || line.ends_with(':')) flush();  // the next sentence begins a line
  }
  flush();
  return wrapped;
}

std::string wrapped(std::string_view text, std::size_t columns) {
  std::string all;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    add_wrapped_line(all, text.substr(at, end - at), columns);
    if (end < text.size()) all += '\n';
    at = end + 1;
  }
  return all;
}

std::string message_text(std::string_view text) {
  while (text.ends_with('\n')) text.remove_suffix(1);
  return hanging(printable_lines(text), 2);
}

void say(std::string_view text) noexcept {
  try {
    const std::string message = message_text(text) + "\n";
    write_to(stderr, is_terminal(stderr) ? wrapped(message, columns_to_fill(stderr)) : message);
  } catch (...) {  // no memory
    write_to(stderr, "attnforge: a message does not fit into memory\n");
  }
  std::fflush(stderr);
}

void write_out(std::string_view text) noexcept {
  try {
    write_to(stdout,
             is_terminal(stdout) ? wrapped(text, columns_to_fill(stdout)) : std::string(text));
  } catch (...) {  // no memory
    write_to(stdout, text);
  }
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

InterruptScope::InterruptScope() {
  noted = false;
  struct sigaction action {};
  action.sa_handler = note;
  sigemptyset(&action.sa_mask);
  action.sa_flags = SA_RESETHAND | SA_RESTART;  // the second one does what it always does
  sigaction(SIGINT, &action, &previous_int);
  sigaction(SIGTERM, &action, &previous_term);
}

InterruptScope::~InterruptScope() {
  sigaction(SIGINT, &previous_int, nullptr);
  sigaction(SIGTERM, &previous_term, nullptr);
}

bool interrupted() { return noted; }

}  // namespace attnforge::cli
