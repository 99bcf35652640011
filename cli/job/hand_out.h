// hand_out.h - which process of a job has which problem: handed out one by one, and again where a
// process is lost. Pure; the clock is the caller's.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>
#include <vector>

namespace attnforge::cli {

/// A process says something once a second. One that is silent for longer is lost: what it had goes
/// to others, and what it sends after all still counts.
inline constexpr double kSilentSeconds = 6;
/// A problem that this many processes were lost with is not handed out again.
inline constexpr int kMostLosses = 2;

class HandOut {
 public:
  HandOut(std::size_t problems, int ranks, double now_s);

  void heard(int rank, double now_s);
  /// The next problem, which is that rank's from now on; nothing: all are done or at work.
  std::optional<std::size_t> next(int rank);
  /// False if it was done before.
  bool done(int rank, std::size_t problem);
  /// Ranks that became lost since the last call. Rank 0, who asks, never is.
  std::vector<int> lose_silent(double now_s);

  bool lost(int rank) const { return ranks_[static_cast<std::size_t>(rank)].lost; }
  bool given_up(std::size_t problem) const { return losses_[problem] >= kMostLosses; }
  /// Every problem is done or given up.
  bool finished() const { return open_ == 0; }

 private:
  struct Rank {
    double heard_s = 0;
    std::optional<std::size_t> has{};
    bool lost = false;
  };
  std::deque<std::size_t> queue_;
  std::vector<bool> done_;
  std::vector<int> losses_;  // of problems
  std::vector<Rank> ranks_;
  std::size_t open_;
};

}  // namespace attnforge::cli
