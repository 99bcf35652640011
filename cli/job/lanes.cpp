#include "cli/job/lanes.h"

#include <algorithm>

#include "attnforge/tune.h"

namespace attnforge::cli {

Lanes::Lanes(const std::vector<Problem>& problems, std::size_t lanes) : in_work_(lanes) {
  for (std::size_t i = 0; i < problems.size(); ++i) {
    buckets_.push_back(measured_as(problems[i]));
    left_.push_back(i);
  }
}

std::optional<std::size_t> Lanes::next(std::size_t lane) {
  leave(lane);
  std::unique_lock lock(mutex_);
  auto found = left_.end();
  changed_.wait(lock, [&] {
    found = std::ranges::find_if(left_, [&](std::size_t i) {
      return std::ranges::find(in_work_, std::optional(buckets_[i])) == in_work_.end();
    });
    return found != left_.end() || left_.empty();
  });
  if (left_.empty()) return std::nullopt;
  const std::size_t index = *found;
  left_.erase(found);
  in_work_[lane] = buckets_[index];
  if (left_.empty()) changed_.notify_all();  // who waits has nothing to wait for
  return index;
}

void Lanes::leave(std::size_t lane) {
  {
    const std::lock_guard lock(mutex_);
    in_work_[lane].reset();
  }
  changed_.notify_all();
}

}  // namespace attnforge::cli
