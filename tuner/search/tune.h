// tune.h - the loop of a tuning run: candidates are compiled, proved, timed against each other, and
// every try is stored. The public tune() (attnforge/tune.h) makes the evaluator and the candidates
// and calls this.
#pragma once

#include <vector>

#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/candidates.h"
#include "tuner/evaluate.h"
#include "tuner/search/environment.h"

namespace attnforge {

// Shares of a first run's limit. The tuning process stops at kFirstRunShare; it needs the rest to
// store and load. Waiting processes stop at kFirstRunWaitShare; they need the rest to compile a
// fallback.
inline constexpr double kFirstRunShare = 0.875;
inline constexpr double kFirstRunWaitShare = 0.925;

/// Searches `candidates` (as candidates(families, ...) returns them: not empty, the untuned choice
/// first) for `problem` (the bucket's) on `device`.
/// - A finished search of this rigor or better in `cache` is the answer, unless options.retune;
/// nothing runs then.
/// - Tries stored with the digest and NVRTC of today are not repeated, good or bad, but finalists
/// are timed again.
/// - Winners of problems that are like this one (cache/near_problems.h) are tried after the untuned
/// choice.
/// - Another process that tunes the same problem is waited for, at most options.time_limit_s or ten
/// minutes; when that is
///   over, the best that it stored so far is returned as incomplete.
/// - With environment.first_run any search that another process ended is the answer, however short
/// it was cut: a plan waits, and all that wait shall go on with the same config. A search for one
/// ends after kFirstRunShare of the limit, counted from environment.spent_s ago, and counts as a
/// finished quick one however few it saw. A process that waits for it in vain tunes nothing and
/// returns after kFirstRunWaitShare, with other_at_work.
/// - options.time_limit_s and options.cancelled end the run within about 0.3 s (a compile in flight
/// runs on until the
///   evaluator is destroyed). A quarter of the limit is left for the final, more if the times
///   measured so far ask for it. Of a full search half of it at most goes into the first compiles.
/// - The favourites, the stored winner and the untuned choice, are compiled first and waited for,
/// until the final must begin. Nobody is timed before they are, and nothing is if they are not.
/// They are always in the final, win ties, in that order, and fall only by its rounds (falls() in
/// choices.h).
/// - environment.unsearched are tried first too, and are in the final. With environment.times_asked
/// its rounds time the sizes asked for beside the bucket's, unless kernels are slow
/// (times_as_asked()): the geometric mean of both decides, among those that neither fail nor
/// are slower than one of the unsearched at the sizes asked for. What is stored is the bucket's
/// time.
/// - A run cut short by its limit counts as a finished quick search to plans, if it timed its
/// favourites. A later quick one goes on where it was if it saw fewer candidates than one should.
/// Same candidates, options, evaluator times and database: same result. Throws Error(kCuda) when
/// the evaluator lost its GPU, after the tries were stored; a failing candidate or database never
/// throws.
TuneResult tune_problem(const Problem& problem, const DeviceFacts& device, Cache& cache,
                        Evaluator& evaluator, const std::vector<Candidate>& candidates,
                        const TuneOptions& options, const TuneEnvironment& environment);

}  // namespace attnforge
