// tune.h - the loop of a tuning run: candidates are compiled, proved, timed against each other, and
// every try is stored. The public tune() (attnforge/tune.h) makes the evaluator and the candidates
// and calls this.
#pragma once

#include <vector>

#include "attnforge/tune.h"
#include "cache/cache.h"
#include "generator/candidates.h"
#include "tuner/environment.h"
#include "tuner/evaluate.h"

namespace attnforge {

/// Searches `candidates` (as candidates(families, ...) returns them: not empty, the untuned choice
/// first) for `problem` (the bucket's) on `device`.
/// - A finished search of this rigor or better in `cache` is the answer, unless options.retune;
/// nothing runs then.
/// - Tries stored with the digest and NVRTC of today are not repeated, good or bad, but finalists
/// are timed again.
/// - Another process that tunes the same problem is waited for, at most options.time_limit_s or ten
/// minutes; when that is
///   over, the best that it stored so far is returned as incomplete.
/// - options.time_limit_s and options.cancelled end the run within about 0.3 s (a compile in flight
/// runs on until the
///   evaluator is destroyed). Half of the limit at most goes into the first compiles, a quarter is
///   left for the final. A run cut short by its limit counts as a finished quick search if it saw
///   as many candidates as one.
/// - The stored winner and the untuned choice are always in the final and win ties, in that order.
/// Same candidates, options, evaluator times and database: same result. Throws Error(kCuda) when
/// the evaluator lost its GPU, after the tries were stored; a failing candidate or database never
/// throws.
TuneResult tune_problem(const Problem& problem, const DeviceFacts& device, Cache& cache,
                        Evaluator& evaluator, const std::vector<Candidate>& candidates,
                        const TuneOptions& options, const TuneEnvironment& environment);

}  // namespace attnforge
