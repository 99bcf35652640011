// stats.h - what a device has done for plans so far: to assert that serving compiles nothing and
// runs nothing that was not tuned.
#pragma once

#include <cstdint>

#include "attnforge/device.h"

namespace attnforge {

struct Stats {
  std::uint64_t compiles = 0;       // by NVRTC, of a search's tries only the winner's
  std::uint64_t plans = 0;          // for problems whose bucket had none yet
  std::uint64_t untuned_plans = 0;  // of these, those that Policy::kCachedOnly would have refused
  std::uint64_t shipped_plans = 0;  // of these, those that go by a winner that ships
};

/// Thread-safe; never throws but in a forked child.
ATTNFORGE_API Stats stats(Device& device);

}  // namespace attnforge
