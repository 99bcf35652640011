#include "reference/usable_cores.h"

#include <sched.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <thread>

namespace attnforge {
namespace {

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

int cores_of_affinity() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof(set), &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));  // over 1024 cores
}

/// A container sees its own group as the root; cgroup v1 has two files.
double read_quota() {
  const double quota = cores_of_quota(text_of("/sys/fs/cgroup/cpu.max"));
  return quota > 0 ? quota
                   : cores_of_quota(text_of("/sys/fs/cgroup/cpu/cpu.cfs_quota_us") + " " +
                                    text_of("/sys/fs/cgroup/cpu/cpu.cfs_period_us"));
}

}  // namespace

double cores_of_quota(std::string_view text) {
  std::istringstream words{std::string(text)};
  double quota_us = 0, period_us = 0;
  if (!(words >> quota_us >> period_us) || quota_us <= 0 || period_us <= 0) return 0;
  return quota_us / period_us;
}

int usable_cores() {
  static const double quota = read_quota();  // each parallel_for() asks
  const int cores = cores_of_affinity();
  return quota > 0 ? std::clamp(static_cast<int>(std::ceil(quota)), 1, cores) : cores;
}

}  // namespace attnforge
