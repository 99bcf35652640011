// trust.h - who may have written a database. It decides which machine code runs, so it is used only
// if nobody but this user and root can have touched it.
#pragma once

#include <string>

namespace attnforge {

/// The absolute path that `path` leads to, its symbolic links followed, also those that lead to
/// nothing yet: what is asked for its owner, opened, made and renamed. It is still a link where
/// they lead round in a loop.
std::string real_path(const std::string& path);

/// The folder of a path; "." for a bare name.
std::string folder_of(const std::string& path);

/// "" if a database can be at `path` (a real_path()): a file, or nothing yet. Else what is there,
/// and what to do.
std::string not_a_file(const std::string& path);

/// "" if a file that is missing at `path` (a real_path()), and its journal, can be made. Finds out
/// by making another one for a moment in the nearest folder that exists.
std::string cannot_be_made(const std::string& path);

/// "" if the database at `path` (a real_path()) can be trusted: its folder, and of the file and its
/// -journal, -wal and -shm what exists, belong to this user or to root and can be written by no
/// other user; nor can the folders above, unless they are sticky. Else what is wrong and what to
/// do. Anything is trusted under $ATTNFORGE_CACHE_TRUST=any.
std::string distrust(const std::string& path);

/// Why a path is not trusted, whatever the environment says: for doctor.
std::string reason_for_distrust(const std::string& path);

/// Whether $ATTNFORGE_CACHE_TRUST is any. Throws Error(kInvalidArgument) if it is set to something
/// else than own or any.
bool anybody_is_trusted();

/// Make the folders of `path` that are missing (0700), and an empty file (0600). What exists is
/// left as it is; what cannot be made shows when the file is opened.
void make_private_folder(const std::string& path);
void make_private_file(const std::string& path);

}  // namespace attnforge
