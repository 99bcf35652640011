#include "tuner/made_up_tables.h"

#include "generator/parts/part.h"
#include "generator/tensors/operands.h"
#include "reference/factor_rows.h"
#include "reference/likely_lse.h"
#include "reference/sequences.h"

namespace attnforge {

void set_made_up_tables(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  set_usual_factor_tables(problem, host);
  set_random_tables(problem, host, seed);
  for (const ProblemPart* part : problem_parts())
    if (part->make_up != nullptr && part->in(problem)) part->make_up(problem, host, seed);
  if (reads(problem, "lse")) set_likely_lse(problem, host);
}

}  // namespace attnforge
