// messages.h - texts between the processes of an MPI job. with_mpi.cpp or without_mpi.cpp has them,
// as attnforge was built.
#pragma once

#include <memory>
#include <optional>
#include <string>

namespace attnforge::cli {

/// One process's end of the job. Not thread-safe. Nothing here waits for another process, so that
/// one that is lost keeps nobody; what is sent to it is dropped.
class JobMessages {
 public:
  virtual ~JobMessages() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Among the processes of this machine.
  virtual int local_rank() const = 0;
  virtual int local_size() const = 0;

  virtual void send(int to, std::string text) = 0;
  struct Received {
    int from = 0;
    std::string text;
  };
  /// What has arrived whole.
  virtual std::optional<Received> receive() = 0;
  /// Called once, at the end. `whole`: nobody was lost, and all leave together. Else this process
  /// ends here, with `exit_code`, without waiting for the others.
  virtual void leave(bool whole, int exit_code) = 0;
};

/// Joins the job that this process was started in; alone it is one of one process. Throws
/// Error(kUnsupported) where attnforge was built without MPI.
std::unique_ptr<JobMessages> join_job();

}  // namespace attnforge::cli
