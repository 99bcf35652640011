// configs.h - configs and the tries of a search as people read them. JSON and CSV have the whole
// text of configs.
#pragma once

#include <string>
#include <vector>

#include "attnforge/tune.h"

namespace attnforge::cli {

/// Help of the flag --full, equal in every verb that shows configs.
inline constexpr const char* kFullHelp = "Configs as their whole text, as --config takes it";

/// In words, or `full`: the text as it is.
std::string config_text(const std::string& config, bool full);

/// The first `most` of them, 0: all. Indented.
std::string tries_table(const std::vector<Trial>& tries, int most, bool full);

}  // namespace attnforge::cli
