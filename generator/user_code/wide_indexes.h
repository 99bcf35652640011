// wide_indexes.h - texts whose indexes may pass the ints that positions are.
#pragma once

#include <string_view>

#include "attnforge/problem.h"
#include "generator/user_code/code_tree.h"

namespace attnforge {

/// Whether a text computes an index of an array from numbers of 2^31 or more in some problem of the
/// bucket: of one that args gives more elements there, or by what positions, lengths and, where
/// args says no size, elements of other arrays and functions may be. Texts that are no tree are
/// judged by sizes alone. All problems of a bucket have the same answer.
bool has_wide_indexes(std::string_view text, CodeText kind, const Problem& problem);

}  // namespace attnforge
