// job_rank_test.cpp - which share of a list of problems a process of a job tunes.
#include "cli/options/job_rank.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "attnforge/error.h"

namespace attnforge::cli {
namespace {

std::optional<JobRank> rank_in(const std::map<std::string, std::string>& environment) {
  return job_rank([&](const char* name) {
    const auto found = environment.find(name);
    return found == environment.end() ? nullptr : found->second.c_str();
  });
}

void expect(const std::map<std::string, std::string>& environment, int rank, int world, int local) {
  const std::optional<JobRank> found = rank_in(environment);
  ASSERT_TRUE(found) << environment.begin()->first;
  EXPECT_EQ(found->rank, rank) << environment.begin()->first;
  EXPECT_EQ(found->world, world) << environment.begin()->first;
  EXPECT_EQ(found->local, local) << environment.begin()->first;
}

TEST(JobRank, IsWhatTheLauncherSays) {
  EXPECT_FALSE(rank_in({}));
  EXPECT_FALSE(rank_in({{"RANK", "1"}}));
  EXPECT_FALSE(rank_in({{"RANK", "first"}, {"WORLD_SIZE", "2"}}));
  expect({{"RANK", "9"}, {"WORLD_SIZE", "16"}, {"LOCAL_RANK", "1"}}, 9, 16, 1);
  expect({{"OMPI_COMM_WORLD_RANK", "3"},
          {"OMPI_COMM_WORLD_SIZE", "4"},
          {"OMPI_COMM_WORLD_LOCAL_RANK", "2"}},
         3, 4, 2);
  expect({{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}, {"MPI_LOCALRANKID", "1"}}, 1, 2, 1);
  expect({{"SLURM_PROCID", "5"}, {"SLURM_NTASKS", "8"}, {"SLURM_LOCALID", "1"}}, 5, 8, 1);
}

TEST(JobRank, OfAnArrayCountsFromItsFirstTaskByItsStep) {
  // A batch script is one task of its own.
  expect({{"SLURM_PROCID", "0"},
          {"SLURM_NTASKS", "1"},
          {"SLURM_ARRAY_TASK_ID", "16"},
          {"SLURM_ARRAY_TASK_COUNT", "4"},
          {"SLURM_ARRAY_TASK_MIN", "10"},
          {"SLURM_ARRAY_TASK_STEP", "2"}},
         3, 4, 0);
  expect({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "1"}}, 0, 1, 0);
}

TEST(JobRank, OfTasksOfAnArrayCountsThroughAllOfThem) {
  expect({{"SLURM_PROCID", "1"},
          {"SLURM_NTASKS", "2"},
          {"SLURM_LOCALID", "1"},
          {"SLURM_ARRAY_TASK_ID", "3"},
          {"SLURM_ARRAY_TASK_COUNT", "3"},
          {"SLURM_ARRAY_TASK_MIN", "1"}},
         5, 6, 1);
}

TEST(JobRank, ThatIsNoneOfItsWorldIsRefused) {
  EXPECT_THROW(rank_in({{"PMI_RANK", "2"}, {"PMI_SIZE", "2"}}), Error);
  // ids 1 and 7 of a list: no shares follow from them
  EXPECT_THROW(rank_in({{"SLURM_ARRAY_TASK_ID", "7"},
                        {"SLURM_ARRAY_TASK_COUNT", "2"},
                        {"SLURM_ARRAY_TASK_MIN", "1"}}),
               Error);
  // ids 1, 3 and 9: the first would be right by itself
  EXPECT_THROW(rank_in({{"SLURM_ARRAY_TASK_ID", "1"},
                        {"SLURM_ARRAY_TASK_COUNT", "3"},
                        {"SLURM_ARRAY_TASK_MIN", "1"},
                        {"SLURM_ARRAY_TASK_MAX", "9"}}),
               Error);
}

}  // namespace
}  // namespace attnforge::cli
