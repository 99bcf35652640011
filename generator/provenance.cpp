#include "attnforge/provenance.h"

namespace attnforge {

std::string_view to_string(Provenance provenance) {
  switch (provenance) {
    case Provenance::kMeasured:
      return "measured";
    case Provenance::kCompatible:
      return "compatible";
    case Provenance::kStale:
      return "stale";
    case Provenance::kNearDevice:
      return "near_device";
    case Provenance::kNearProblem:
      return "near_problem";
    case Provenance::kEstimated:
      return "estimated";
    case Provenance::kForced:
      return "forced";
  }
  return "unknown";
}

}  // namespace attnforge
