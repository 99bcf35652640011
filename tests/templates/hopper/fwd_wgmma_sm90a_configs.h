// fwd_wgmma_sm90a_configs.h - what a config of the family says of its warpgroups' registers.
#pragma once

#include <fmt/format.h>

#include <string>

#include "generator/shape.h"
#include "templates/fwd_wgmma_sm90a/config.h"

namespace attnforge::test {

/// The shape and the fields that decide about threads and registers; the others are 0.
inline FwdWgmmaSm90aConfig registers_of(const Config& config, const Problem& problem) {
  FwdWgmmaSm90aConfig c{};
  static_cast<Shape&>(c) = shape_of(problem);
  c.warpgroups = config.get("warpgroups");
  c.blocks_per_sm = config.get("blocks_per_sm");
  return c;
}

/// Registers that the warpgroups of a block want to have together, all threads counted.
inline int registers_taken(const FwdWgmmaSm90aConfig& c) {
  return 128 * c.producer_registers() + 128 * c.warpgroups * c.consumer_registers();
}

/// "" if a kernel that starts with `registers` a thread has those that its warpgroups want. If it
/// has fewer, the last warpgroup waits for ever.
inline std::string register_fault(const Config& config, const Problem& problem, int registers) {
  const FwdWgmmaSm90aConfig c = registers_of(config, problem);
  const int given = (registers + 7) / 8 * 8;
  if (registers_taken(c) <= given * c.num_threads() && given <= c.consumer_registers()) return "";
  return fmt::format("{} registers a thread at launch, of which warpgroups share out {} and {}",
                     registers, c.producer_registers(), c.consumer_registers());
}

}  // namespace attnforge::test
