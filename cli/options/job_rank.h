// job_rank.h - which process of a job this is, as its launcher says in the environment.
#pragma once

#include <functional>
#include <optional>

namespace attnforge::cli {

struct JobRank {
  int rank = 0;
  int world = 1;
  int local = 0;  // on its machine; 0 where the launcher does not say
};

/// By torchrun, OpenMPI, MPICH or Slurm, the first that started several processes, else the first
/// that started one; nothing without a launcher. Processes of each task of a Slurm array are ranks
/// of one world. `variable` reads the environment, nullptr where it lacks a name. Throws
/// Error(kInvalidArgument) for a rank that is none of its world, and for arrays with gaps.
std::optional<JobRank> job_rank(const std::function<const char*(const char*)>& variable);

}  // namespace attnforge::cli
