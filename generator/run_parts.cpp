#include "generator/run_parts.h"

#include <array>

namespace attnforge {

std::span<const RunPart* const> run_parts() {
  static const std::array<const RunPart*, 7> kParts = {
      &gradients_in_run(), &sinks_in_run(),      &rope_in_run(), &lengths_in_run(),
      &pages_in_run(),     &block_mask_in_run(), &code_in_run()};
  return kParts;
}

}  // namespace attnforge
