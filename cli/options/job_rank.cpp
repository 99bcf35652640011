#include "cli/options/job_rank.h"

#include <algorithm>

#include "cli/options/command_line.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

struct Launcher {
  const char *rank, *world, *local;
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK"},  // torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},  // MPICH
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"},
};

using Variable = std::function<const char*(const char*)>;

std::optional<int> number(const Variable& variable, const char* name) {
  const char* const text = variable(name);
  return text == nullptr ? std::nullopt : number_in<int>(text);
}

/// Of a process among those of its launch.
std::optional<JobRank> rank_of_launch(const Variable& variable) {
  std::optional<JobRank> alone;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> rank = number(variable, launcher.rank),
                             world = number(variable, launcher.world);
    if (!rank || !world) continue;
    if (*rank < 0 || *rank >= *world)
      refuse(kInvalidArgument, "{}={} is no rank of {}={}: say --shard I/N", launcher.rank, *rank,
             launcher.world, *world);
    const JobRank found{*rank, *world, number(variable, launcher.local).value_or(0)};
    if (found.world > 1) return found;
    if (!alone) alone = found;
  }
  return alone;
}

/// Of a task among those of a Slurm array, whose ids count from any number by any step.
std::optional<JobRank> rank_of_array(const Variable& variable) {
  const std::optional<int> id = number(variable, "SLURM_ARRAY_TASK_ID"),
                           count = number(variable, "SLURM_ARRAY_TASK_COUNT");
  if (!id || !count) return std::nullopt;
  const int first = number(variable, "SLURM_ARRAY_TASK_MIN").value_or(0);
  const int step = std::max(1, number(variable, "SLURM_ARRAY_TASK_STEP").value_or(1));
  const int last = number(variable, "SLURM_ARRAY_TASK_MAX").value_or(first + (*count - 1) * step);
  const int rank = (*id - first) / step;
  if (rank < 0 || rank >= *count || (last - first) / step + 1 != *count)
    refuse(kInvalidArgument,
           "SLURM_ARRAY_TASK_ID={} is of an array with gaps: no shares follow from it; say --shard "
           "I/N",
           *id);
  return JobRank{rank, *count, 0};
}

}  // namespace

std::optional<JobRank> job_rank(const Variable& variable) {
  const std::optional<JobRank> launch = rank_of_launch(variable), array = rank_of_array(variable);
  if (!launch || !array) return launch ? launch : array;
  return JobRank{array->rank * launch->world + launch->rank, array->world * launch->world,
                 launch->local};
}

}  // namespace attnforge::cli
