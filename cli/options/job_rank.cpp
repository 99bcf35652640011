#include "cli/options/job_rank.h"

#include "cli/options/command_line.h"
#include "cli/refuse.h"

namespace attnforge::cli {
namespace {

struct Launcher {
  const char *rank, *world, *local;
  const char *first, *step;  // of ranks that do not count from 0 by 1
};
constexpr Launcher kLaunchers[] = {
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", nullptr, nullptr},  // torchrun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", nullptr,
     nullptr},
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", nullptr, nullptr},  // MPICH
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr, nullptr},
    {"SLURM_ARRAY_TASK_ID", "SLURM_ARRAY_TASK_COUNT", nullptr, "SLURM_ARRAY_TASK_MIN",
     "SLURM_ARRAY_TASK_STEP"},
};

}  // namespace

std::optional<JobRank> job_rank(const std::function<const char*(const char*)>& variable) {
  const auto number = [&](const char* name) -> std::optional<int> {
    const char* const text = name == nullptr ? nullptr : variable(name);
    return text == nullptr ? std::nullopt : number_in<int>(text);
  };
  std::optional<JobRank> alone;
  for (const Launcher& launcher : kLaunchers) {
    const std::optional<int> id = number(launcher.rank), world = number(launcher.world);
    if (!id || !world) continue;
    const int step = number(launcher.step).value_or(1);
    const int rank = (*id - number(launcher.first).value_or(0)) / (step > 0 ? step : 1);
    if (rank < 0 || rank >= *world)
      refuse(kInvalidArgument, "{}={} is no rank of {}={}: say --shard I/N", launcher.rank, *id,
             launcher.world, *world);
    const JobRank found{rank, *world, number(launcher.local).value_or(0)};
    if (found.world > 1) return found;
    if (!alone) alone = found;
  }
  return alone;
}

}  // namespace attnforge::cli
