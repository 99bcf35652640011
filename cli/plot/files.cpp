// files.cpp - pictures in a folder, drawn by gnuplot.
#include "cli/plot/figure.h"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "cli/files/text_files.h"
#include "cli/refuse.h"
#include "cli/terminal/terminal.h"

namespace attnforge::cli {
namespace {

namespace fs = std::filesystem;

constexpr int kNotFound = 127;  // exit code of a child that could not become gnuplot

struct Ended {
  int code = 0;
  std::string said;  // on standard error
};

/// gnuplot on a script, in the script's folder.
Ended run_gnuplot(const std::string& folder, const std::string& script) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) refuse(kIo, "no pipe for gnuplot: {}", std::strerror(errno));
  const pid_t child = fork();
  if (child < 0) {
    close(ends[0]);
    close(ends[1]);
    refuse(kIo, "no process for gnuplot: {}", std::strerror(errno));
  }
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    if (chdir(folder.c_str()) == 0) execlp("gnuplot", "gnuplot", script.c_str(), nullptr);
    _exit(kNotFound);
  }
  close(ends[1]);
  Ended ended;
  char bytes[4096];
  for (ssize_t count; (count = ::read(ends[0], bytes, sizeof(bytes))) != 0;) {
    if (count < 0 && errno != EINTR) break;
    if (count > 0) ended.said.append(bytes, static_cast<std::size_t>(count));
  }
  close(ends[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
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
