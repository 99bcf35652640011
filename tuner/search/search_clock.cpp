#include "tuner/search/search_clock.h"

#include <algorithm>
#include <limits>

#include "tuner/search/race.h"
#include "tuner/search/tune.h"

namespace attnforge {
namespace {

constexpr double kStoreSeconds = 0.05;  // for the end of a search, on a slow disk

}  // namespace

double SearchClock::end_s() const {
  if (options.time_limit_s <= 0) return std::numeric_limits<double>::infinity();
  return start_s + (environment.first_run ? kFirstRunShare : 1) * options.time_limit_s;
}

double SearchClock::final_deadline() const { return end_s() - longest_proof_s - kStoreSeconds; }

double SearchClock::search_deadline(double share, std::span<const double> times_us) const {
  if (options.time_limit_s <= 0) return end_s();
  // Another process may have had the first part of the limit.
  const double whole_s = end_s() - search_start_s;
  const double final_s = std::min(final_seconds(options.rigor, times_us, environment.times_asked),
                                  0.5 * whole_s);
  return std::min(search_start_s + share * whole_s, final_deadline() - final_s);
}

bool SearchClock::is_before(double until_s) {
  if (options.cancelled && options.cancelled()) cancelled = true;
  return !cancelled && now_s() < until_s;
}

}  // namespace attnforge
