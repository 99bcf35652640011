// files.cpp - pictures in a folder, drawn by gnuplot.
#include "cli/plot/figure.h"

#include <sys/wait.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>

#include "cli/files/text_files.h"
#include "cli/refuse.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNotFound = 127;  // exit code of a shell that did not find gnuplot

struct Ended {
  int code = 0;
  std::string said;  // on standard error
};

/// As one word of a shell.
std::string shell_word(const std::string& text) {
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

/// gnuplot on a script, in the script's folder.
Ended run_gnuplot(const std::string& folder, const std::string& script) {
  const std::string command = fmt::format("cd {} && exec gnuplot {} 2>&1",
                                          shell_word(fs::absolute(folder).string()),
                                          shell_word(script));
  errno = 0;
  std::FILE* const output = popen(command.c_str(), "re");
  if (output == nullptr) refuse(kIo, "no process for gnuplot: {}", errno_text());
  Ended ended;
  char bytes[4096];
  while (const std::size_t count = std::fread(bytes, 1, sizeof(bytes), output))
    ended.said.append(bytes, count);
  const int status = pclose(output);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return ended;
}

}  // namespace

std::vector<std::string> draw(const std::vector<Picture>& pictures, const std::string& folder) {
  std::error_code failed;
  fs::create_directories(folder, failed);
  if (failed) {
    refuse(kIo, "the folder {} for pictures cannot be made: {}", folder, failed.message());
  }
  for (const Picture& picture : pictures) {
    write_text((fs::path(folder) / (picture.file + ".dat")).string(), picture.data);
    write_text((fs::path(folder) / (picture.file + ".gp")).string(), picture.script);
  }
  std::vector<std::string> drawn;
  for (const Picture& picture : pictures) {
    const std::string script = picture.file + ".gp";
    const Ended ended = run_gnuplot(folder, script);
    if (ended.code == kNotFound) {
      refuse(
          kIo,
          "gnuplot is not on PATH, so nothing was drawn. Data and scripts are in {0}: install "
          "gnuplot (apt-get install gnuplot-nox) here or elsewhere and run, in {0}: gnuplot *.gp",
          folder);
    }
    if (ended.code != 0) {
      refuse(kIo, "gnuplot could not draw {}/{} (exit code {}): {}", folder, script, ended.code,
             ended.said);
    }
    drawn.push_back((fs::path(folder) / (picture.file + ".png")).string());
  }
  return drawn;
}

void draw_results(const std::function<std::vector<Picture>()>& pictures,
                  const std::string& folder) {
  try {
    for (const std::string& path : draw(pictures(), folder)) say("drawn: " + path);
  } catch (const Error& error) {
    if (!interrupted()) throw;
    say(fmt::format("attnforge: interrupted, and nothing was drawn: {}", error.what()));
  }
}

}  // namespace attnforge::cli
