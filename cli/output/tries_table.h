// tries_table.h - the tries of a search as a table. Pure.
#pragma once

#include <string>
#include <vector>

#include "attnforge/tune.h"

namespace attnforge::cli {

/// The first `most` of them, 0: all; configs in words, or `full`. Indented.
std::string tries_table(const std::vector<Trial>& tries, int most, bool full);

}  // namespace attnforge::cli
