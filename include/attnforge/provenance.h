// provenance.h - where a config came from: one vocabulary for the database, searches, plans, the
// command line, C and Python.
#pragma once

#include <string_view>

#include "attnforge/cxx20.h"

namespace attnforge {

/// Where a config came from, and so how much is known of its time for a problem on a GPU. A plan
/// prefers what comes first, except for kForced.
enum class Provenance {
  kMeasured,     // won on this problem's bucket and this GPU class, as the code of today; or no
                 // search ended, and it is the fastest try that may answer
  kCompatible,   // the same, but under another driver or NVRTC. Plans do not ask: to them it is
                 // kMeasured
  kStale,        // won before its template was changed, and was not measured since
  kNearDevice,   // won on this bucket on another GPU of the same sm
  kNearProblem,  // won on a problem that is like this one, on this GPU class
  kEstimated,    // the model's choice; nothing was measured
  kForced,       // the caller's choice (PlanOptions::config), or the environment's
};

/// "measured", "compatible", "stale", "near_device", "near_problem", "estimated", "forced".
ATTNFORGE_API std::string_view to_string(Provenance provenance);

/// Where the winner was found that a config came from. A plan asks them in this order.
enum class Layer {
  kNone,      // nowhere: it is the model's, or forced
  kDatabase,  // of the plan's device
  kSite,      // ATTNFORGE_SITE_CACHE
  kShipped,   // among those that come with the library (data/winners)
};

/// "none", "database", "site", "shipped".
ATTNFORGE_API std::string_view to_string(Layer layer);

/// Whether the code of today was measured on this bucket and this GPU class.
constexpr bool is_measured(Provenance provenance) {
  return provenance == Provenance::kMeasured || provenance == Provenance::kCompatible;
}

}  // namespace attnforge
