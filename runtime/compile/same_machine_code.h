// same_machine_code.h - whether two cubins hold the same kernels, instruction by instruction.
#pragma once

#include <cstddef>
#include <span>

namespace attnforge {

/// Whether all that a GPU loads is the same, but for where constants of the source lie that
/// kernels have long compiled in: ptxas puts them in an order of their own, which any other order
/// of declarations changes. What is not a whole cubin is the same as equal bytes alone.
bool same_machine_code(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace attnforge
