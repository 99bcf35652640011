#include "templates/host/part_rules.h"

#include "templates/host/part.h"

namespace attnforge {

Reason illegal_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                        const DeviceFacts& device) {
  for (const Part* part : all_parts()) {
    if (part->illegal == nullptr) continue;
    if (Reason wrong = part->illegal(shape, problem, tiling, device)) return wrong;
  }
  return "";
}

Reason needless_by_parts(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                         const DeviceFacts& device) {
  for (const Part* part : all_parts()) {
    if (part->needless == nullptr) continue;
    if (Reason waste = part->needless(shape, problem, tiling, device)) return waste;
  }
  return "";
}

double part_steps_us(const Shape& shape, const Problem& problem, const QueryTiling& tiling,
                     const DeviceFacts& device) {
  double us = 0;
  for (const Part* part : all_parts()) {
    if (part->steps_us != nullptr) us += part->steps_us(shape, problem, tiling, device);
  }
  return us;
}

}  // namespace attnforge
