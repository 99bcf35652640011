// process.h - a worker: the program attnforge in a process of its own, which ends with this one.
#pragma once

#include <sys/types.h>

#include <string>

#include "tuner/worker/channel.h"

namespace attnforge {

/// Which program serves as worker, and what it must say that it is: one of another build would take
/// arguments for others. program "": there is none.
struct WorkerProgram {
  std::string path;
  std::string identity;
};

/// What a worker does: runs kernels, or NVRTC alone.
enum class WorkerRole { kGpu, kCompile };

/// Owns the process and its end of the socket. Ending it never waits for what it does: it is killed
/// with its process group. It has no descriptor of this process but its socket, and writes nothing.
/// It ends when the other end of the socket is closed; where it runs kernels Linux kills it, too,
/// when the thread that started it ends.
class WorkerProcess {
 public:
  /// Throws Error(kIo) if the program cannot be started.
  WorkerProcess(const WorkerProgram& program, WorkerRole role);
  ~WorkerProcess() { end(); }
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  Channel& channel() { return channel_; }
  /// Kills what still runs. How it ended: "was killed by signal 11 (Segmentation fault)".
  std::string end();

 private:
  pid_t pid_ = -1;
  Channel channel_;
};

/// The worker's side: takes the socket from standard input and closes every other descriptor but
/// standard output and error. Sets the limits of its role. False if the supervisor is gone already,
/// whose process id is `supervisor`.
bool become_worker(WorkerRole role, pid_t supervisor);

}  // namespace attnforge
