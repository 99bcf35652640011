// made_up_tables.h - the contents of a run's tables where the caller brings none.
#pragma once

#include <cstdint>

#include "attnforge/host_tensors.h"
#include "attnforge/problem.h"

namespace attnforge {

/// Sets the tables of all parts that the problem has: random ones of a
/// seed, and the lse that a backward reads.
void set_made_up_tables(const Problem& problem, HostTensors& host, std::uint64_t seed);

}  // namespace attnforge
