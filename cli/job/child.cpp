#include "cli/job/child.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>

#include "cli/files/text_files.h"
#include "cli/refuse.h"

namespace attnforge::cli {

Child::Child(const std::vector<std::string>& arguments) {
  output_ = memfd_create("attnforge", MFD_CLOEXEC);
  std::vector<char*> words = {const_cast<char*>("attnforge")};
  for (const std::string& word : arguments) words.push_back(const_cast<char*>(word.c_str()));
  words.push_back(nullptr);
  const pid_t parent = getpid();
  process_ = output_ < 0 ? -1 : fork();
  if (process_ < 0) refuse(kIo, "a process for a problem cannot be started: {}", errno_text());
  if (process_ > 0) return;
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  if (getppid() != parent) _exit(1);  // it died before
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof(all));
  sched_setaffinity(0, sizeof(all), &all);  // the kernel leaves out what the job may not use
  dup2(output_, STDOUT_FILENO);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, STDIN_FILENO);
  execv("/proc/self/exe", words.data());
  _exit(127);
}

Child::~Child() {
  if (process_ > 0) {
    kill(process_, SIGKILL);
    waitpid(process_, nullptr, 0);
  }
  if (output_ >= 0) close(output_);
}

std::optional<int> Child::ended() {
  int status = 0;
  if (process_ <= 0 || waitpid(process_, &status, WNOHANG) != process_) return std::nullopt;
  process_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Child::interrupt() {
  if (process_ > 0) kill(process_, SIGINT);
}

std::string Child::output() {
  std::string text;
  char block[4096];
  for (off_t at = 0;; at += static_cast<off_t>(sizeof(block))) {
    const ssize_t got = pread(output_, block, sizeof(block), at);
    if (got <= 0) return text;
    text.append(block, static_cast<std::size_t>(got));
    if (got < static_cast<ssize_t>(sizeof(block))) return text;
  }
}

}  // namespace attnforge::cli
