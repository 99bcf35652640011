#include "tuner/worker/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "attnforge/error.h"

namespace attnforge {
namespace {

constexpr rlim_t kCompileBytes = rlim_t{8} << 30;
constexpr int kSocket = 0;       // standard input
constexpr int kEndTries = 1000;  // of 2 ms

/// Signals as they are in a new process, whatever the caller has made of them; no standard output.
struct SpawnSetup {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;

  explicit SpawnSetup(int socket) {
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_adddup2(&files, socket, kSocket);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    posix_spawn_file_actions_addopen(&files, 2, "/dev/null", O_WRONLY, 0);
    posix_spawnattr_init(&attributes);
    sigset_t signals;
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes, &signals);
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes, &signals);
    posix_spawnattr_setpgroup(&attributes, 0);
    posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK);
  }
  ~SpawnSetup() {
    posix_spawnattr_destroy(&attributes);
    posix_spawn_file_actions_destroy(&files);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;
};

}  // namespace

WorkerProcess::WorkerProcess(const WorkerProgram& program, WorkerRole role) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    throw Error(ErrorCode::kIo, fmt::format("no socket for a worker: {}", std::strerror(errno)));
  channel_ = Channel(ends[0]);
  Channel theirs(ends[1]);  // closed here in any case
  const SpawnSetup setup(ends[1]);
  std::string words[] = {"attnforge", "worker", role == WorkerRole::kGpu ? "gpu" : "compile",
                         std::to_string(getpid())};
  char* arguments[] = {words[0].data(), words[1].data(), words[2].data(), words[3].data(), nullptr};
  const int failed = posix_spawn(&pid_, program.path.c_str(), &setup.files, &setup.attributes,
                                 arguments, environ);
  if (failed != 0) {
    pid_ = -1;
    throw Error(ErrorCode::kIo, fmt::format("the worker {} could not be started: {}", program.path,
                                            std::strerror(failed)));
  }
}

std::string WorkerProcess::end() {
  if (pid_ < 0) return "had ended before";
  int status = 0;
  pid_t ended = 0;
  const auto wait = [&](int tries) {
    for (; tries > 0 && (ended = waitpid(pid_, &status, WNOHANG)) == 0; --tries) usleep(2000);
  };
  // One that has ended by itself says why; a socket closes a little before its process is a zombie.
  wait(channel_.open() ? 1 : 100);
  const bool by_itself = ended != 0;
  kill(-pid_, SIGKILL);
  if (!by_itself) {
    kill(pid_, SIGKILL);  // its group may not be there yet
    wait(kEndTries);      // a driver that is stuck may keep it: then it stays a zombie
  }
  pid_ = -1;
  channel_.close();
  if (!by_itself) return "was ended";
  if (ended < 0) return "ended, and who has waited for it knows how";  // or SIGCHLD is ignored
  if (WIFSIGNALED(status))
    return fmt::format("was killed by signal {} ({})", WTERMSIG(status),
                       strsignal(WTERMSIG(status)));
  return fmt::format("ended with code {}", WEXITSTATUS(status));
}

bool become_worker(WorkerRole role, pid_t supervisor) {
  if (role == WorkerRole::kGpu) prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != supervisor) return false;  // it ended before that
#ifdef SYS_close_range
  if (syscall(SYS_close_range, 3u, ~0u, 0u) != 0)
#endif
    for (int descriptor = 3; descriptor < 4096; ++descriptor) close(descriptor);
  const auto limit = [](auto resource, rlim_t value) {
    rlimit now{};
    if (getrlimit(resource, &now) != 0) return;
    now.rlim_cur = std::min(value, now.rlim_max);
    setrlimit(resource, &now);
  };
  limit(RLIMIT_CORE, 0);
  // CUDA reserves more addresses than any GPU has memory.
  if (role == WorkerRole::kCompile) limit(RLIMIT_AS, kCompileBytes);
  return true;
}

}  // namespace attnforge
