// wide_indexes.h - texts whose indexes may pass the ints that positions are.
#pragma once

#include <string_view>

#include "attnforge/problem.h"
#include "generator/user_code/code_tree.h"

namespace attnforge {

/// Whether a text reads an array at an index of 2^31 or more in some problem of the bucket: one
/// that args gives more elements there, or one without a size whose index comes to as much by what
/// positions and lengths may be. False of arrays without a size in texts that are no tree. The same
/// for all problems of a bucket.
bool has_wide_indexes(std::string_view text, CodeText kind, const Problem& problem);

}  // namespace attnforge
