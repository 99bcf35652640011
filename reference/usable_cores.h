// usable_cores.h - how many cores this process may use, which in a container or under taskset are
// fewer than the machine has.
#pragma once

#include <string_view>

namespace attnforge {

/// By its affinity, and the quota that its control group had at the first call; at least 1.
int usable_cores();
/// What the text of cpu.max (cgroup v2: "quota period" in us, or "max period") allows; 0: any.
double cores_of_quota(std::string_view text);

}  // namespace attnforge
