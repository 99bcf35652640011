// arch.h - the table of compute capabilities, and typical GPUs for planning without one.
#pragma once

#include <span>
#include <string_view>

#include "attnforge/device.h"

namespace attnforge {

/// Every arch that attnforge generates for, ascending.
std::span<const Arch> archs();

/// The arch of a name with or without "sm", "sm_" and the feature letter: "86", "sm_90", "sm90a".
/// Throws Error(kInvalidArgument) listing the known ones.
const Arch& arch_named(std::string_view name);

/// The arch of a compute capability, e.g. 90; nullptr if unknown. Minor revisions fall to the arch
/// whose code runs on them (87 -> 86).
const Arch* arch_for_sm(int sm);

/// `arch` with what a board of that name has of its own: the rate of its tensor cores. "": GeForce.
Arch arch_of_board(Arch arch, std::string_view name);

/// Resident blocks per SM of a kernel with `registers` per thread, `threads` and `smem_bytes` per
/// block.
int blocks_per_sm(const Arch& arch, int registers, int threads, int smem_bytes);

/// The class of GPUs that share winners: name, arch, SMs, memory clock, L2, MIG profile. Readable,
/// stable, no ordinal, no uuid.
std::string device_class(const DeviceFacts& facts);

}  // namespace attnforge
