// run_parts.cpp - the list of parts: the one file that names them all.
#include "generator/run_parts.h"

namespace attnforge {

extern const RunPart gradients_in_run;
extern const RunPart sinks_in_run;
extern const RunPart rope_in_run;
extern const RunPart lengths_in_run;
extern const RunPart pages_in_run;
extern const RunPart block_mask_in_run;
extern const RunPart code_in_run;

std::span<const RunPart* const> run_parts() {
  static constexpr const RunPart* kParts[] = {&gradients_in_run, &sinks_in_run, &rope_in_run,
                                              &lengths_in_run,   &pages_in_run, &block_mask_in_run,
                                              &code_in_run};
  return kParts;
}

}  // namespace attnforge
