// problems.h - problems that every family's tests walk through: head dims, dtypes, masks and
// options spread thinly.
#pragma once

#include <span>

#include "attnforge/problem.h"

namespace attnforge::test {

/// For any family and arch at least eight of them are supported by a family that takes 16-bit
/// floats; all by fwd_naive.
std::span<const Problem> template_problems();

/// More of what a Hopper family serves: head dims in every step of padding, packed heads, masks and
/// tails. For families of one arch; on all archs their compiles would take too long.
std::span<const Problem> hopper_problems();

/// For families that take fp32 alone: both regimes of query tiles, TF32 by permission, head dims
/// that fill registers or shared memory.
std::span<const Problem> fp32_problems();

}  // namespace attnforge::test
