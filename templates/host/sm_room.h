// sm_room.h - whether the blocks that a config wants on an SM have room there; the reason if not.
#pragma once

#include <algorithm>
#include "generator/arch.h"
#include "generator/reason.h"

namespace attnforge {

/// Shared memory that the system takes from every block.
inline constexpr int kReservedSmemBytes = 1024;

/// Registers that a thread can have with blocks_per_sm blocks on an SM.
template <class Typed>
int registers_available(const Typed& c, const Arch& arch) {
  return std::min(255, arch.registers_per_sm / (c.num_threads() * c.blocks_per_sm) / 8 * 8);
}

template <class Typed>
bool smem_has_room(const Typed& c, const Arch& arch) {
  return c.blocks_per_sm * (c.smem_bytes() + kReservedSmemBytes) <= arch.smem_per_sm_bytes;
}

/// Whether blocks_per_sm blocks fit an SM: by what the main loop keeps in registers and
/// `register_slack` beside it, shared memory and threads.
template <class Typed>
bool sm_has_room(const Typed& c, const Arch& arch, int register_slack) {
  return c.planned_registers() + register_slack <= registers_available(c, arch) &&
         smem_has_room(c, arch) && c.blocks_per_sm * c.num_threads() <= arch.max_threads_per_sm &&
         c.blocks_per_sm <= arch.max_blocks_per_sm;
}

/// Why a block cannot have more shared memory than arch.smem_per_block_bytes.
inline Reason too_much_smem(int smem_bytes, const Arch& arch) {
  return Reason("needs {} bytes of shared memory, sm_{} gives a block {}", smem_bytes, arch.sm,
                arch.smem_per_block_bytes);
}

/// What a config without room by sm_has_room() needs.
template <class Typed>
Reason no_room(const Typed& c, const Arch& arch, int register_slack) {
  return Reason(
      "{} blocks per SM do not fit: about {} of {} registers, {} bytes of shared memory each",
      c.blocks_per_sm, c.planned_registers() + register_slack, registers_available(c, arch),
      c.smem_bytes());
}

}  // namespace attnforge
