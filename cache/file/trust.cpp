#include "cache/file/trust.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <sqlite3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <vector>

#include "cache/file/process.h"
#include "generator/text/throw_error.h"

namespace attnforge {
namespace {

namespace fs = std::filesystem;

// Where every user has a group of the same name (Debian, Fedora, ...), files that this group may
// write are the user's alone. Group 0 of root is such a group too.
bool is_own_private_group(gid_t gid) {
  const std::optional<Account> user = account_of(geteuid());
  if (!user || user->group != gid) return false;
  std::vector<char> buffer(16384);
  group own{};
  group* found = nullptr;
  if (getgrgid_r(gid, &own, buffer.data(), buffer.size(), &found) != 0 || !found ||
      user->name != own.gr_name)
    return false;
  for (char** member = own.gr_mem; *member; ++member)
    if (user->name != *member) return false;
  return true;
}

std::string name_of(uid_t uid) {
  const std::optional<Account> user = account_of(uid);
  return user ? fmt::format("{} (uid {})", user->name, uid) : fmt::format("uid {}", uid);
}

// In a user namespace without root (rootless containers, Apptainer) the system's folders belong to
// the user that stands for all who are not mapped: to nobody who can be met in there.
bool is_nobody_of_this_namespace(uid_t uid) {
  uid_t nobody = 0;
  if (!(std::ifstream("/proc/sys/kernel/overflowuid") >> nobody) || uid != nobody) return false;
  std::ifstream map("/proc/self/uid_map");
  for (std::uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;)
    if (uid >= inside && uid - inside < count) return false;
  return true;
}

enum class Kind { kFile, kFolder, kFolderAbove };

// "" for what is missing, or is only this user's and root's.
std::string objection(const std::string& path, Kind kind) {
  struct stat facts = {};
  if (lstat(path.c_str(), &facts) != 0) return "";
  const std::string what = fmt::format("{} {}", kind == Kind::kFile ? "the file" : "the folder",
                                       path);
  const bool above = kind == Kind::kFolderAbove;
  if (facts.st_uid != geteuid() && facts.st_uid != 0 &&
      !(above && is_nobody_of_this_namespace(facts.st_uid)))
    return fmt::format(
        "{} belongs to {}, not to {}: name another database (ATTNFORGE_CACHE), or "
        "have it changed by chown",
        what, name_of(facts.st_uid), name_of(geteuid()));
  if (S_ISLNK(facts.st_mode)) return "";  // its mode says nothing
  // What is in a sticky folder can be renamed by its owner alone, who is trusted.
  const bool sticky = (facts.st_mode & S_ISVTX) != 0;
  if (above && sticky) return "";
  if ((facts.st_mode & S_IWOTH) != 0 && kind == Kind::kFolder && sticky)
    return fmt::format(
        "{} can be written by every user, who could put a journal beside the "
        "database: use a folder of your own in it (mkdir -m 700)",
        what);
  if ((facts.st_mode & S_IWOTH) != 0)
    return fmt::format("{} can be written by every user (mode {:o}): chmod go-w it", what,
                       facts.st_mode & 07777);
  if ((facts.st_mode & S_IWGRP) != 0 && !is_own_private_group(facts.st_gid))
    return fmt::format("{} can be written by its group (gid {}, mode {:o}): chmod g-w it", what,
                       facts.st_gid, facts.st_mode & 07777);
  return "";
}

}  // namespace

std::string real_path(const std::string& path) {
  constexpr int kMostLinks = 40;  // as Linux has it
  std::error_code failed;
  fs::path real = "/";
  const fs::path whole = fs::absolute(path, failed);
  if (failed) return path;  // the current folder is gone
  std::deque<fs::path> rest(whole.begin(), whole.end());
  for (int links = 0; !rest.empty();) {
    const fs::path part = std::move(rest.front());
    rest.pop_front();
    if (part.empty() || part == "/" || part == ".") continue;
    if (part == "..") {
      real = real.parent_path();
      continue;
    }
    const fs::path target = fs::read_symlink(real / part, failed);
    if (failed || ++links > kMostLinks) {
      real /= part;
      continue;
    }
    if (target.is_absolute()) real = "/";
    rest.insert(rest.begin(), target.begin(), target.end());
  }
  return real.string();
}

std::string not_a_file(const std::string& path) {
  struct stat facts = {};
  const bool missing = lstat(path.c_str(), &facts) != 0;
  const bool loop = missing ? errno == ELOOP : S_ISLNK(facts.st_mode);
  if (!loop && (missing || S_ISREG(facts.st_mode))) return "";
  const char* what = loop                     ? "leads round in a loop of symbolic links"
                     : S_ISDIR(facts.st_mode) ? "is a folder"
                                              : "is no file but a pipe, socket or device";
  return fmt::format("{} {}: name a file (--cache, ATTNFORGE_CACHE)", path, what);
}

std::string cannot_be_made(const std::string& path) {
  constexpr std::size_t kSuffix = std::string_view("-journal").size();
  const auto because = [&](const std::string& reason) {
    return fmt::format("{} cannot be made: {}; name another file (--cache, ATTNFORGE_CACHE)", path,
                       reason);
  };
  std::error_code failed;
  fs::path there = folder_of(path);
  while (there.has_relative_path() && !fs::exists(there, failed)) there = there.parent_path();
  if (!fs::is_directory(there, failed))
    return because(fmt::format("{} is no folder", there.string()));

  // SQLite names its journal after the file.
  const auto most_of_path = static_cast<std::size_t>(sqlite3_vfs_find(nullptr)->mxPathname);
  const auto too_long = [&](std::string_view what, std::size_t length, std::size_t most) {
    return because(fmt::format("{} has {} bytes, of which there may be {}", what, length, most));
  };
  if (path.size() + kSuffix > most_of_path)
    return too_long("its path", path.size(), most_of_path - kSuffix);
  const long asked = pathconf(there.c_str(), _PC_NAME_MAX);
  const std::size_t most_of_name = asked > 0 ? static_cast<std::size_t>(asked) : NAME_MAX;
  for (const fs::path& name : fs::path(folder_of(path)))
    if (name.native().size() > most_of_name)
      return too_long("the name of a folder", name.native().size(), most_of_name);
  const std::size_t own = fs::path(path).filename().native().size();
  if (own + kSuffix > most_of_name) return too_long("its name", own, most_of_name - kSuffix);

  // Permissions alone do not tell of read-only or special file systems.
  const std::string probe = (there / fmt::format(".attnforge-probe-{}", getpid())).string();
  const int file = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (file < 0 && errno != EEXIST)  // another thread looks too
    return because(fmt::format("{} cannot be written ({})", there.string(),
                               std::generic_category().message(errno)));
  if (file >= 0) {
    close(file);
    unlink(probe.c_str());
  }
  return "";
}

std::string folder_of(const std::string& path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

std::string reason_for_distrust(const std::string& path) {
  const fs::path folder = folder_of(path);
  std::string reason = objection(folder.string(), Kind::kFolder);
  for (const char* suffix : {"", "-journal", "-wal", "-shm"})
    if (reason.empty()) reason = objection(path + suffix, Kind::kFile);
  // Who can rename a folder above can put another one in its place.
  for (fs::path above = folder; reason.empty() && above.has_relative_path();) {
    above = above.parent_path();
    reason = objection(above.string(), Kind::kFolderAbove);
  }
  return reason;
}

bool anybody_is_trusted() {
  const char* value = secure_getenv("ATTNFORGE_CACHE_TRUST");
  const std::string_view word = value ? value : "";
  if (!word.empty() && word != "own" && word != "any") {
    throw_error(ErrorCode::kInvalidArgument,
                "ATTNFORGE_CACHE_TRUST={}: it is own (a database that others can write is refused) "
                "or any; or unset it",
                word);
  }
  return word == "any";
}

std::string distrust(const std::string& path) {
  if (anybody_is_trusted()) return "";
  std::string reason = reason_for_distrust(path);
  if (!reason.empty())
    reason += ". It decides which code runs; ATTNFORGE_CACHE_TRUST=any uses it all the same";
  return reason;
}

void make_private_folder(const std::string& path) {
  fs::path made;
  for (const fs::path& part : fs::path(folder_of(path))) {
    made /= part;
    (void)mkdir(made.c_str(), 0700);  // most exist
  }
}

void make_private_file(const std::string& path) {
  // Not open() and close(): closing any descriptor of a file ends this process's locks on it, also
  // those of another connection.
  struct stat facts = {};
  if (lstat(path.c_str(), &facts) != 0) (void)mknod(path.c_str(), S_IFREG | 0600, 0);
}

}  // namespace attnforge
