// host.cpp - a soft cap: another Score, and its derivative.
#include "templates/host/assembly.h"

namespace attnforge {

extern const Part softcap_part;

constinit const Part softcap_part{
    .name = "softcap",
    .in = [](const Assembly& a) { return a.shape.softcap != 0 && !a.kernel.pieces->exact; },
    .fill =
        [](Entry& entry, const Assembly& a) {
          entry.pieces.fill(Slot::kScore, {"SoftcapScore", "parts/softcap/score.cuh"});
          if (a.kernel.slopes)
            entry.pieces.fill(Slot::kSlope, {"SoftcapSlope", "parts/softcap/slope.cuh"});
        }};

}  // namespace attnforge
