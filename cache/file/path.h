// path.h - the file that a path of the database means.
#pragma once

#include <string>

namespace attnforge {

/// `path`, of which a leading "~/" is the home folder, as no shell sees to in a variable or after
/// "="; "": default_cache_path(). Without a home folder ~ stays.
std::string asked_cache_path(const std::string& path);

}  // namespace attnforge
