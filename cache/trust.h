// trust.h - who may have written a database. It decides which machine code runs, so it is used only
// if nobody but this user and root can have touched it.
#pragma once

#include <string>

namespace attnforge {

/// `path` with its symbolic links followed, as far as it exists: what is asked for its owner,
/// opened and renamed.
std::string real_path(const std::string& path);

/// The folder of a path; "." for a bare name.
std::string folder_of(const std::string& path);

/// "" if the database at `path` (a real_path()) can be trusted: its folder, and of the file and its
/// -journal, -wal and -shm what exists, belong to this user or to root and can be written by no
/// other user. Else what is wrong and what to do. Anything is trusted under
/// $ATTNFORGE_CACHE_TRUST=any.
std::string distrust(const std::string& path);

/// The same whatever the environment says: for doctor.
std::string reason_for_distrust(const std::string& path);

/// Whether $ATTNFORGE_CACHE_TRUST is any. Throws Error(kInvalidArgument) if it is set to something
/// else than own or any.
bool anybody_is_trusted();

/// Make the folders of `path` that are missing (0700), and an empty file (0600). What exists is
/// left as it is; what cannot be made is noticed by whoever opens the file.
void make_private_folder(const std::string& path);
void make_private_file(const std::string& path);

}  // namespace attnforge
