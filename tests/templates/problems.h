// problems.h - problems that every family's tests walk through: head dims, dtypes, masks and
// options spread thinly.
#pragma once

#include <ostream>
#include <span>
#include <vector>

#include "attnforge/problem.h"
#include "generator/family.h"

namespace attnforge {

/// A test's parameter: its name is the same in every run, so that ctest remembers what it takes.
inline void PrintTo(const Family* family, std::ostream* out) { *out << family->name; }

}  // namespace attnforge

namespace attnforge::test {

/// For any family and arch at least eight of them are supported by a family that takes 16-bit
/// floats; all by fwd_naive.
std::span<const Problem> template_problems();

/// More of what a Hopper family serves: head dims in every step of padding, packed heads, masks and
/// tails.
std::span<const Problem> hopper_problems();

/// For families that take fp32 alone: both regimes of query tiles, TF32 by permission, head dims
/// that fill registers or shared memory.
std::span<const Problem> fp32_problems();

/// For backward families: at least eight of them for any that takes 16-bit floats, all for
/// bwd_naive.
std::span<const Problem> backward_problems();

std::span<const Problem> merge_problems();
std::span<const Problem> append_problems();

/// The list that a family's tests walk through: template_problems(), or fp32_problems() for one
/// that takes nothing else, or backward_problems(), or merge_problems().
std::span<const Problem> problems_of(const Family& family);

/// Of that list, and of hopper_problems() for a family of one arch, what it serves on `arch`.
std::vector<Problem> problems_on(const Family& family, const Arch& arch);

}  // namespace attnforge::test
