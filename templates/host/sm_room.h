// sm_room.h - whether the blocks that a config wants on an SM have room there.
#pragma once

#include <algorithm>
#include "generator/arch.h"

namespace attnforge {

/// Shared memory that the system takes from every block.
inline constexpr int kReservedSmemBytes = 1024;

/// Registers that a thread can have with blocks_per_sm blocks on an SM.
template <class Typed>
int registers_available(const Typed& c, const Arch& arch) {
  return std::min(255, arch.registers_per_sm / (c.num_threads() * c.blocks_per_sm) / 8 * 8);
}

/// `more`: bytes that a block takes beside those of its config.
template <class Typed>
bool smem_has_room(const Typed& c, const Arch& arch, int more = 0) {
  return c.blocks_per_sm * (c.smem_bytes() + more + kReservedSmemBytes) <= arch.smem_per_sm_bytes;
}

/// Whether an SM holds blocks_per_sm blocks: their shared memory and threads.
template <class Typed>
bool sm_holds_blocks(const Typed& c, const Arch& arch) {
  return smem_has_room(c, arch) && c.blocks_per_sm * c.num_threads() <= arch.max_threads_per_sm &&
         c.blocks_per_sm <= arch.max_blocks_per_sm;
}

/// Whether these blocks leave a thread what the main loop keeps in registers, and `register_slack`
/// as well. A model of what ptxas needs: with fewer it spills.
template <class Typed>
bool registers_suffice(const Typed& c, const Arch& arch, int register_slack) {
  return c.planned_registers() + register_slack <= registers_available(c, arch);
}

/// Both.
template <class Typed>
bool sm_has_room(const Typed& c, const Arch& arch, int register_slack) {
  return registers_suffice(c, arch, register_slack) && sm_holds_blocks(c, arch);
}

}  // namespace attnforge
