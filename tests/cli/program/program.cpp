#include "tests/cli/program/program.h"

#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <system_error>
#include <thread>

#include "tests/cli/temporary_folder.h"

namespace attnforge::cli {
namespace {

constexpr std::chrono::seconds kTooLong{120};

/// In the child: becomes the program.
[[noreturn]] void become(const std::vector<std::string>& arguments,
                         const Environment& environment) {
  for (const auto& [name, value] : environment) setenv(name.c_str(), value.c_str(), 1);
  std::vector<char*> argv{const_cast<char*>(ATTNFORGE_PROGRAM)};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv(ATTNFORGE_PROGRAM, argv.data());
  _exit(126);
}

void redirect(const std::string& path, int to) {
  const int file = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (file < 0 || dup2(file, to) < 0) _exit(125);
}

}  // namespace

pid_t start_program(const std::vector<std::string>& arguments, const Environment& environment,
                    const std::string& out_path, const std::string& err_path) {
  const pid_t child = fork();
  if (child < 0) throw std::system_error(errno, std::generic_category(), "fork");
  if (child > 0) return child;
  redirect("/dev/null", STDIN_FILENO);
  redirect(out_path, STDOUT_FILENO);
  redirect(err_path, STDERR_FILENO);
  become(arguments, environment);
}

int exit_code_of(pid_t process) {
  const auto start = std::chrono::steady_clock::now();
  int status = 0;
  while (waitpid(process, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() - start > kTooLong) {
      kill(process, SIGKILL);
      waitpid(process, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

Outcome run_program(const std::vector<std::string>& arguments, const Environment& environment) {
  const TemporaryFolder folder;
  const std::string out = folder.file("out"), err = folder.file("err");
  const int code = exit_code_of(start_program(arguments, environment, out, err));
  return {code, read_file(out), read_file(err)};
}

bool has_terminals() {
  int terminal = -1, other_side = -1;
  if (openpty(&terminal, &other_side, nullptr, nullptr, nullptr) != 0) return false;
  close(terminal);
  close(other_side);
  return true;
}

Outcome run_on_terminal(int columns, const std::vector<std::string>& arguments,
                        const Environment& environment) {
  winsize size{};
  size.ws_row = 24;
  size.ws_col = static_cast<unsigned short>(columns);
  int terminal = -1;
  const pid_t child = forkpty(&terminal, nullptr, nullptr, &size);
  if (child == 0) become(arguments, environment);
  if (child < 0) return {-1, "", std::strerror(errno)};
  Outcome outcome;
  char buffer[4096];
  // Ends with an error when the child has closed the other side.
  for (ssize_t count = 0; (count = read(terminal, buffer, sizeof buffer)) > 0;) {
    outcome.out.append(buffer, static_cast<std::size_t>(count));
  }
  outcome.exit_code = exit_code_of(child);
  close(terminal);
  return outcome;
}

}  // namespace attnforge::cli
