#include "tuner/tensors/made_up_tables.h"

#include "generator/parts/part.h"
#include "generator/tensors/operands.h"
#include "reference/likely_lse.h"
#include "reference/parts/rope.h"
#include "reference/sequences.h"

namespace attnforge {

void set_made_up_tables(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  set_usual_factor_tables(problem, host);
  set_random_tables(problem, host, seed);
  for_each_part<&ProblemPart::make_up>(problem, problem, host, seed);
  if (reads(problem, "lse")) set_likely_lse(problem, host);
}

}  // namespace attnforge
