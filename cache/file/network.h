// network.h - file systems that several machines write: SQLite's locks do not keep these apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace attnforge {

/// False for a network or user-space file system (NFS, SMB, Lustre, FUSE, ...) and where it cannot
/// be told: WAL keeps its index in memory that all processes must share, which only one machine
/// can.
bool on_local_file_system(const std::string& path);

/// "" if a database at `path` (a real_path()) may be written, else that other machines may write
/// the file system, and what to do. Anything is written under $ATTNFORGE_CACHE_TRUST=any.
std::string network_objection(const std::string& path);

/// The name of a file system that several machines write, "" of any other. `type`: f_type of
/// statfs(2). `source`: what is mounted, which alone tells a remote FUSE (host:/folder) from
/// others.
std::string_view shared_file_system(std::uint32_t type, std::string_view source);

/// What is mounted where `path` is, by the text of /proc/self/mountinfo; "" if it does not say.
std::string mount_source(std::string_view mountinfo, std::string_view path);

}  // namespace attnforge
