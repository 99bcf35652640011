// disassemble.cpp - finds nvdisasm or cuobjdump and runs it with a time limit.
#include "runtime/compile/disassemble.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <string_view>

#include "runtime/compile/compiler.h"

extern char** environ;

namespace attnforge {
namespace {

using Clock = std::chrono::steady_clock;

struct Tool {
  const char* name;
  const char* option;
  const char* line_option;  // "": it cannot
};
// nvdisasm first: it prints labels for jumps.
constexpr Tool kTools[] = {{"nvdisasm", "--print-code", "--print-line-info-inline"},
                           {"cuobjdump", "--dump-sass", ""}};

std::vector<std::string> default_folders() {
  std::vector<std::string> folders;
  const char* path = secure_getenv("PATH");
  std::string_view rest = path ? path : "";
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find(':'), rest.size());
    if (end > 0) folders.emplace_back(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char* root = secure_getenv(variable)) folders.push_back(std::string(root) + "/bin");
  folders.push_back("/usr/local/cuda/bin");
  folders.push_back("/opt/cuda/bin");
  // pip puts nvidia-cuda-nvdisasm next to NVRTC: nvidia/cu13/bin and nvidia/cu13/lib.
  const std::string& nvrtc = nvrtc_facts().path;
  if (const std::size_t end = nvrtc.rfind('/'); end != std::string::npos)
    folders.push_back(nvrtc.substr(0, end) + "/../bin");
  return folders;
}

/// A file with the cubin, removed on destruction. path is "" when it could not be written, and
/// problem says why.
struct TemporaryFile {
  std::string path;
  std::string problem;

  explicit TemporaryFile(std::span<const std::byte> bytes) {
    const char* folder = secure_getenv("TMPDIR");
    std::string name = fmt::format("{}/attnforge-XXXXXX", folder && *folder ? folder : "/tmp");
    const int file = mkostemp(name.data(), O_CLOEXEC);
    if (file < 0) {
      problem = fmt::format("cannot create {}: {}; set TMPDIR to a folder that can be written",
                            name, std::strerror(errno));
      return;
    }
    path = name;
    while (!bytes.empty() && problem.empty()) {
      const ssize_t written = write(file, bytes.data(), bytes.size());
      if (written >= 0)
        bytes = bytes.subspan(static_cast<std::size_t>(written));
      else if (errno != EINTR)
        problem = fmt::format("cannot write {}: {}; set TMPDIR to a folder with room", name,
                              std::strerror(errno));
    }
    close(file);
  }
  ~TemporaryFile() {
    if (!path.empty()) unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

/// Starts `arguments[0]` in a process group of its own, with both outputs in a pipe. Returns 0, or
/// an errno value.
int start(const std::vector<std::string>& arguments, pid_t& child, int& output) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return errno;
  std::vector<char*> words;
  for (const std::string& argument : arguments)
    words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);

  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&attributes, 0);
  const int result = posix_spawn(&child, words[0], &actions, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(ends[1]);
  if (result != 0)
    close(ends[0]);
  else
    output = ends[0];
  return result;
}

/// Reads until the end of the output or the deadline. False at the deadline.
bool read_until(int output, Clock::time_point deadline, std::string& text) {
  char part[1 << 14];
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now())
                          .count();
    if (left <= 0) return false;
    pollfd waiting{output, POLLIN, 0};
    const int ready = poll(&waiting, 1, static_cast<int>(std::min<long long>(left, 1000)));
    if (ready < 0 && errno != EINTR) return true;
    if (ready <= 0) continue;
    const ssize_t size = read(output, part, sizeof(part));
    if (size == 0 || (size < 0 && errno != EINTR)) return true;
    if (size > 0) text.append(part, static_cast<std::size_t>(size));
  }
}

/// Waits for the end of the child; it has closed its output or was killed, so this is short.
int wait_for(pid_t child) {
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR)
      return 0;  // the host reaps children itself (SIGCHLD ignored): its status is not to be had
  return status;
}

Disassembly run_tool(const std::vector<std::string>& command, double time_limit_s) {
  const std::string& program = command.front();
  Disassembly result;
  result.tool = program;
  pid_t child = -1;
  int output = -1;
  if (const int error = start(command, child, output); error != 0) {
    result.problem = fmt::format("{} could not be started: {}", program, std::strerror(error));
    return result;
  }
  const auto limit = std::chrono::duration_cast<Clock::duration>(
      std::chrono::duration<double>(time_limit_s));
  std::string text;
  const bool ended = read_until(output, Clock::now() + limit, text);
  if (!ended) kill(-child, SIGKILL);
  close(output);
  const int status = wait_for(child);
  if (!ended)
    result.problem = fmt::format("{} did not end within {} s and was stopped", program,
                                 time_limit_s);
  else if (status != 0)
    result.problem = fmt::format(
        "{} failed ({} {}): {}", program, WIFSIGNALED(status) ? "signal" : "exit status",
        WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), text.substr(0, 2000));
  else if (text.empty())
    result.problem = fmt::format("{} printed nothing", program);
  else
    result.text = std::move(text);
  return result;
}

}  // namespace

Disassembly disassemble(std::span<const std::byte> cubin, const DisassembleOptions& options) {
  const std::vector<std::string> folders = options.folders.empty() ? default_folders()
                                                                   : options.folders;
  Disassembly result;
  TemporaryFile file(cubin);
  if (!file.problem.empty()) {
    result.problem = file.problem;
    return result;
  }
  for (const Tool& tool : kTools) {
    for (const std::string& folder : folders) {
      const std::string program = folder + "/" + tool.name;
      if (access(program.c_str(), X_OK) != 0) continue;
      std::vector<std::string> command = {program, tool.option};
      if (options.line_info && *tool.line_option) command.push_back(tool.line_option);
      command.push_back(file.path);
      Disassembly attempt = run_tool(command, options.time_limit_s);
      if (attempt.problem.empty()) return attempt;
      if (!result.problem.empty()) result.problem += "; ";
      result.problem += attempt.problem;
      result.tool = attempt.tool;
      break;  // the same tool elsewhere is no better; the other one may know the arch
    }
  }
  if (result.problem.empty())
    result.problem =
        "no disassembler: nvdisasm and cuobjdump were not found on PATH, in /usr/local/cuda/bin or "
        "beside NVRTC; install the CUDA toolkit's binary utilities, or nvidia-cuda-nvdisasm with "
        "pip in the environment that NVRTC is in";
  return result;
}

}  // namespace attnforge
