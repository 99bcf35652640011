#include "cli/job/hand_out.h"

namespace attnforge::cli {

HandOut::HandOut(std::size_t problems, int ranks, double now_s)
    : done_(problems),
      losses_(problems),
      ranks_(static_cast<std::size_t>(ranks), Rank{.heard_s = now_s}),
      open_(problems) {
  for (std::size_t i = 0; i < problems; ++i) queue_.push_back(i);
}

void HandOut::heard(int rank, double now_s) {
  Rank& who = ranks_[static_cast<std::size_t>(rank)];
  who.heard_s = now_s;
  who.lost = false;
}

std::optional<std::size_t> HandOut::next(int rank) {
  while (!queue_.empty() && done_[queue_.front()]) queue_.pop_front();  // by one thought lost
  if (queue_.empty()) return std::nullopt;
  const std::size_t problem = queue_.front();
  queue_.pop_front();
  ranks_[static_cast<std::size_t>(rank)].has = problem;
  return problem;
}

bool HandOut::done(int rank, std::size_t problem) {
  Rank& who = ranks_[static_cast<std::size_t>(rank)];
  if (who.has == problem) who.has.reset();
  if (done_[problem]) return false;
  done_[problem] = true;
  if (!given_up(problem)) --open_;
  return true;
}

std::vector<int> HandOut::lose_silent(double now_s) {
  std::vector<int> lost;
  for (std::size_t i = 1; i < ranks_.size(); ++i) {
    Rank& rank = ranks_[i];
    if (rank.lost || now_s - rank.heard_s <= kSilentSeconds) continue;
    rank.lost = true;
    lost.push_back(static_cast<int>(i));
    if (!rank.has) continue;
    const std::size_t problem = *rank.has;
    rank.has.reset();
    if (done_[problem]) continue;
    if (++losses_[problem] >= kMostLosses) {
      --open_;
    } else {
      queue_.push_front(problem);
    }
  }
  return lost;
}

}  // namespace attnforge::cli
