// disassemble.cpp - finds nvdisasm or cuobjdump and runs it with a time limit.
#include "runtime/compile/disassemble.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string_view>

#include "runtime/compile/compiler.h"
#include "runtime/compile/nvrtc_library.h"

namespace attnforge {
namespace {

struct Tool {
  const char* name;
  const char* option;
  const char* line_option;  // "": it cannot
};
// nvdisasm first: it prints labels for jumps.
constexpr Tool kTools[] = {{"nvdisasm", "--print-code", "--print-line-info-inline"},
                           {"cuobjdump", "--dump-sass", ""}};

std::vector<std::string> default_folders() {
  const char* path = secure_getenv("PATH");
  std::vector<std::string> folders = folders_of(path ? path : "");
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
    close(file);
    std::ofstream out(path, std::ios::binary);
    out.write(reinterpret_cast<const char*>(bytes.data()),
              static_cast<std::streamsize>(bytes.size()));
    if (!out.flush())
      problem = fmt::format("cannot write {}: {}; set TMPDIR to a folder with room", name,
                            std::strerror(errno));
  }
  ~TemporaryFile() {
    if (!path.empty()) unlink(path.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
};

/// A word for the shell.
std::string in_quotes(std::string_view word) {
  std::string text = " '";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// timeout(1) stops what the program starts, too.
Disassembly run_tool(const std::vector<std::string>& command, double time_limit_s) {
  const std::string& program = command.front();
  Disassembly result;
  result.tool = program;
  std::string line = fmt::format("timeout -s KILL {}", time_limit_s);
  for (const std::string& word : command) line += in_quotes(word);
  FILE* const output = popen((line + " < /dev/null 2>&1").c_str(), "re");
  if (output == nullptr) {
    result.problem = fmt::format("{} could not be started: {}", program, std::strerror(errno));
    return result;
  }
  std::string text;
  char part[1 << 14];
  while (const std::size_t size = fread(part, 1, sizeof(part), output)) text.append(part, size);
  // -1 where the host reaps children itself (SIGCHLD ignored): the status is not to be had.
  const int status = std::max(0, pclose(output));
  const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  if (code == 128 + SIGKILL)
    result.problem = fmt::format("{} did not end within {} s and was stopped", program,
                                 time_limit_s);
  else if (code == 126 || code == 127)
    result.problem = fmt::format("{} could not be started: {}", program, text.substr(0, 2000));
  else if (code != 0)
    result.problem = fmt::format("{} failed (exit status {}): {}", program, code,
                                 text.substr(0, 2000));
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
