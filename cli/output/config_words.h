// config_words.h - configs as people read them.
#pragma once

#include <string>

#include "attnforge/inspect.h"

namespace attnforge::cli {

/// Help of the flag --full, equal in every verb that shows configs. JSON and CSV have the whole
/// text.
inline constexpr const char* kFullHelp = "Configs as their whole text, as --config takes it";

/// In words, or `full`: the text as it is.
inline std::string config_text(const std::string& config, bool full) {
  return full ? config : describe_config(config);
}

}  // namespace attnforge::cli
