// tune_in_job.h - attnforge tune --mpi: the processes of an MPI job tune the problems of a file, a
// GPU each.
#pragma once

#include <string>
#include <vector>

#include "attnforge/problem.h"

namespace attnforge::cli {

struct JobTask {
  std::vector<Problem> problems;     // the same in all processes
  std::vector<std::string> options;  // of attnforge tune, for each of them
  int compile_threads = 0;           // 0: a process's share of its machine's cores
  std::string cache;                 // as --cache
  bool json = false;
};

/// The first process hands problems out, tunes as well, prints, and has all results in its database
/// at the end. Others of its machine use the same file, those elsewhere the same path on their
/// machine: they get what is known of a problem with it, and send back what they found. Each
/// problem is tuned by a process of its own, so that what it breaks is not the job; one of the job
/// that is lost all the same loses no more than what it was at. Returns the exit code.
int tune_in_job(const JobTask& task);

}  // namespace attnforge::cli
