#include "tuner/made_up_tables.h"

#include "attnforge/block_mask.h"
#include "generator/code_operands.h"
#include "generator/operands.h"
#include "reference/likely_lse.h"
#include "reference/sequences.h"

namespace attnforge {

void set_made_up_tables(const Problem& problem, HostTensors& host, std::uint64_t seed) {
  set_rope_tables(problem, host);
  set_random_sequences(problem, host, seed);
  set_random_pages(problem, host, seed);
  set_random_block_mask(problem, host, seed);
  set_code_arguments(problem, host, seed);
  if (reads(problem, "lse")) set_likely_lse(problem, host);
}

}  // namespace attnforge
