// set_aside.h - a damaged file is renamed, so that a new one can be begun.
#pragma once

#include <functional>
#include <string>

namespace attnforge {

struct SetAside {
  std::string renamed_to;  // "": it was not
  std::string failure;     // why not; "" too if another process was faster
};

/// Renames the damaged database at `path` (a real_path()) to "<path>.corrupt-<UTC time>", with its
/// journals, if `is_damaged` still holds under the lock that all processes take for this (another
/// one may have been faster), and if it is a database of ours.
SetAside set_aside(const std::string& path, const std::function<bool()>& is_damaged);

/// Whether a file that could not be opened because of damage is still there.
bool cannot_be_opened(const std::string& path);

}  // namespace attnforge
