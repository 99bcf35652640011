// host.h - keys in pages that a step before the kernel writes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "generator/launch.h"

namespace attnforge {

/// Pages of the workspace, with a table of theirs `table` bytes from its start.
struct OwnPages {
  std::size_t table = 0;
  std::int64_t of_sequence = 0;  // columns of the table
  std::int64_t count = 0;
};

/// Makes a step of a problem in pages read this table in place of the run's, and count these pages.
/// Where k and v lie, LaunchStep::from_workspace says.
void read_own_pages(LaunchStep& step, const OwnPages& pages);

}  // namespace attnforge
