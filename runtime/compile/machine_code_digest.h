// machine_code_digest.h - whether two cubins hold the same kernels, instruction by instruction.
#pragma once

#include <cstddef>
#include <span>
#include <string>

namespace attnforge {

/// Of all that a GPU loads, but for where constants of the source lie that kernels have long
/// compiled in: ptxas puts them in an order of their own, which any other order of declarations
/// changes. Of what is not a whole cubin, of every byte. 32 hex digits (XXH3-128).
std::string machine_code_digest(std::span<const std::byte> cubin);

}  // namespace attnforge
