// tune.h - search the configurations of a problem on the GPU, keep every try in the database.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "attnforge/plan.h"

namespace attnforge {

enum class Rigor {
  kQuick,
  kFull,
  kExhaustive
};  // the model's best few; until converged; every config
ATTNFORGE_API std::string_view to_string(Rigor rigor);
ATTNFORGE_API Rigor parse_rigor(std::string_view text);

enum class Status { kOk, kCompileError, kLaunchError, kWrongResult, kTimedOut };
ATTNFORGE_API std::string_view to_string(Status status);
ATTNFORGE_API Status parse_status(std::string_view text);

/// What one config did. Stored, good or bad.
struct Measurement {
  Status status = Status::kOk;
  double time_us = 0;  // median over samples, cold L2; meaningful only if kOk
  double noise = 0;    // interquartile range / median
  int samples = 0;
  double max_error = 0;  // against the oracle; meaningful if it ran
  double clock_mhz = 0;  // SM clock while timed; 0: unknown
  std::string detail{};  // compiler log or mismatch report, at most 4 KiB
};

struct Trial {
  std::string config{};  // text form
  double estimate_us = 0;
  Measurement measurement{};
};

struct TuneOptions {
  Rigor rigor = Rigor::kFull;
  double time_limit_s = 0;  // 0: none
  std::string family{};     // "": all that support the problem
  int compile_threads = 0;  // 0: one a core; at most 1024
  bool retune = false;      // measure again what the database already has
  bool must_keep = false;   // throw Error(kCache) at once where results cannot be stored
  unsigned seed = 1;        // of inputs and of the order of rounds
  ProgressFunction on_progress{};
  std::function<bool()> cancelled{};  // asked often; true stops the search and keeps what is done
};

struct TuneResult {
  Problem problem{};     // as measured: the bucket's
  std::string winner{};  // config text; "" when nothing worked, or nothing that may win before the
                         // time was over
  double winner_us = 0;
  std::string untuned{};  // the model's first choice
  double untuned_us = 0;
  int tried = 0;
  int failed = 0;
  int reused = 0;  // taken from the database
  int space = 0;   // candidates after pruning
  int left = 0;  // not tried because the search was cut short; of a full search at least this many
  double left_s = 0;  // what they would take, at the pace of this search; 0: unknown
  double elapsed_s = 0;
  bool complete = false;       // not cut short by a limit or cancelled
  bool other_at_work = false;  // the time was over while another process tuned the same problem;
                               // the winner is the best that it had stored by then
  std::string not_kept{};  // why what was found is not in the database, or not all of it; "": it is
  std::vector<Trial> trials{};  // best first, failures last
};

/// How many times the untuned choice takes what the winner takes; 0: unknown.
inline double speed_up(const TuneResult& result) {
  return result.winner_us > 0 && result.untuned_us > 0 ? result.untuned_us / result.winner_us : 0;
}

/// Afterwards the database holds the winner's machine code, also if the search itself was imported:
/// plans with Policy::kCachedOnly find it.
/// Thread-safe. Two tunings by one Device run one after the other. By several Devices of a process
/// on one GPU, their kernels never run side by side: by workers one's run while the other's
/// compile, in this process one search after the other. Where results cannot be stored, the search
/// goes on all the same, unless options.must_keep, and result.not_kept says why. Throws
/// Error(kInvalidProblem), Error(kUnsupported), Error(kCuda) if the GPU is lost.
ATTNFORGE_API TuneResult tune(const Problem& problem, Device& device,
                              const TuneOptions& options = {});

/// What tune() measures in place of `problem`, and keeps the winner for: the problem of its bucket,
/// with sizes rounded up. Cheap, and needs no GPU. A valid problem.
ATTNFORGE_API Problem measured_as(const Problem& problem);

/// What `attnforge worker ROLE SUPERVISOR` does: answers a search of the process `supervisor` over
/// standard input, a socket, until that is closed. `role`: "gpu" or "compile". Returns an exit
/// code, with which the process should end at once (std::_Exit). Never throws.
ATTNFORGE_API int serve_search(std::string_view role, int supervisor);

}  // namespace attnforge
